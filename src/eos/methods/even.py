"""Even: the baseline that needs no search. One early cut to meet the FLOPs, then steady shrinking.

The number of tokens falls to m after the first layer and by the same factor at every further one,
down to the budget; m is as large as the FLOPs limit allows. Three steps stand in for the many:
after the first layer, a third and two thirds of the depth, each keeping what the steady schedule
has in the middle of the stretch that follows.
"""

from eos.methods import Method, Preset


def even_schedule(*, tokens: int, budget: int, num_layers: int) -> tuple[list[int], list[int]]:
    """Lay out the three steps: after which layers, and how many tokens each keeps."""
    layers = sorted({0, round(num_layers / 3), round(2 * num_layers / 3)})
    ends = [*layers[1:], num_layers]
    # shares of the way from m to the budget, in logarithms
    shares = [(start + end) / 2 / num_layers for start, end in zip(layers, ends, strict=True)]
    counts = [round(tokens * (budget / tokens) ** share) for share in shares[:-1]]
    return layers, [*counts, budget]


METHOD = Method(
    paper="a baseline of EOS",
    presets=(
        Preset(
            name="even",
            what="Prune by text raters in even steps, at the FLOPs of SparseVLM v2: one cut after "
            "the first layer, then steady shrinking. The baseline that any search must beat.",
            score="text-raters",
            rule=even_schedule,
            flops_like="sparsevlm-v2",
        ),
    ),
)
