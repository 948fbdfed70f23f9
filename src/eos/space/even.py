"""Even: the baseline that needs no search. One early cut to meet the FLOPs, then steady shrinking.

The number of tokens falls to m after the first layer and by the same factor at every further one,
down to the budget; m is as large as the FLOPs limit allows. Three steps stand in for the many:
after the first layer, a third and two thirds of the depth, each keeping what the steady schedule
has in the middle of the stretch that follows.
"""

from eos.space import cost
from eos.space.cost import Dims

LIKE = "sparsevlm-v2"  # whose FLOPs at the same budget are the limit


def even_counts(
    *,
    tokens: int,
    budget: int,
    num_layers: int,
    dims: Dims,
    text_tokens: int,
    max_flops: float,
) -> tuple[list[int], list[int]]:
    """Lay out the three steps: after which layers, and how many tokens each keeps."""
    layers = sorted({0, round(num_layers / 3), round(2 * num_layers / 3)})
    ends = [*layers[1:], num_layers]
    # shares of the way from m to the budget, in logarithms
    shares = [(start + end) / 2 / num_layers for start, end in zip(layers, ends, strict=True)]
    counts = [round(tokens * (budget / tokens) ** share) for share in shares[:-1]]

    def flops_of(counts: list[int]) -> float:
        keep_after = dict(zip(layers, counts, strict=True))
        schedule = cost.stepwise_schedule(tokens, keep_after, num_layers)
        return float(cost.flops_ratio(schedule, dims, tokens=tokens, text_tokens=text_tokens))

    fitted = cost.fit_to_flops(
        [*counts, budget], tokens=tokens, max_flops=max_flops, flops_of=flops_of
    )
    return layers, fitted or [budget] * len(layers)
