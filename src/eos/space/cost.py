"""Cost: tokens, FLOPs and KV bytes of a schedule (Eq. 11, the N̄ recursion, Eq. 13's constraints).

A *schedule* is N_0, N_1, …, N_L: layer l is entered by N_l visual tokens, and N_L are left after
the last. As a tensor it comes from Θ and everything here is differentiable in it; as a list of
integers it comes from a plan and everything here is exact. Only what is kept is ever counted.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import exp, floor, log, prod
from typing import Any, TypeAlias

from torch import Tensor, cat

from eos.errors import ConfigError
from eos.sizes import Dims as Dims  # also imported from here

Schedule: TypeAlias = Sequence[int] | Tensor

K_MIN = 1
TEXT_TOKENS = 64  # a short question with its template: the text length that ratios assume
_HALVINGS = 30  # of an interval in which a scale is found
_ROUNDING = 1e-4  # a count this close below an integer is that integer: float32 error, not a token


LLAMA_7B = Dims(hidden=4096, intermediate=11008, heads=32, kv_heads=32, head_dim=128)


def retain_count(tokens: int, keep_frac: float, k_min: int = K_MIN) -> int:
    """Count the tokens kept of ``tokens`` (Eq. 11), never more than there are."""
    return min(tokens, max(k_min, floor(keep_frac * tokens + _ROUNDING)))


def retain_schedule(tokens: int, keep_fracs: Sequence[float], k_min: int = K_MIN) -> list[int]:
    """Apply Eq. 11 layer after layer: the integers N_0 … N_L of the deployed forward pass."""
    schedule = [tokens]
    for keep_frac in keep_fracs:
        schedule.append(retain_count(schedule[-1], keep_frac, k_min))
    return schedule


def expected_schedule(tokens: int, compression: Tensor) -> Tensor:
    """Follow N̄_{l+1} = (1 - g_l c_l) N̄_l, differentiable in g·c ``[L]``, giving ``[L + 1]``."""
    fractions = cat([compression.new_ones(1), 1.0 - compression])
    return tokens * fractions.cumprod(dim=0)


def stepwise_schedule(tokens: int, keep_after: Mapping[int, int], num_layers: int) -> list[int]:
    """Lay out a plan's schedule: ``keep_after[l]`` tokens stay after layer l (-1: before all)."""
    schedule = [keep_after.get(-1, tokens)]
    for layer in range(num_layers):
        schedule.append(keep_after.get(layer, schedule[-1]))
    return schedule


def mean_tokens(schedule: Schedule) -> Any:
    """Average the visual tokens that *enter* a layer, which is what a layer's cost depends on."""
    return _total(schedule, lambda n: n) / (len(schedule) - 1)


def layer_flops(tokens: Any, dims: Dims) -> Any:
    """Count one decoder layer's FLOPs on a prompt of ``tokens`` (visual and text)."""
    attention_width = dims.heads * dims.head_dim
    projections = 2 * dims.hidden * (attention_width + dims.kv_heads * dims.head_dim)
    mlp = 3 * dims.hidden * dims.intermediate
    return 2 * tokens * (projections + mlp) + 4 * tokens * tokens * attention_width


def flops(schedule: Schedule, dims: Dims, *, text_tokens: int) -> Any:
    """Count the FLOPs of prefill through all decoder layers (`FLOPS_FORMULA`)."""
    return _total(schedule, lambda n: layer_flops(n + text_tokens, dims))


def kv_bytes(schedule: Schedule, dims: Dims, *, text_tokens: int, bytes_per_value: int = 2) -> Any:
    """Count the bytes of the KV cache after prefill: each layer caches what entered it."""
    per_token = 2 * dims.kv_heads * dims.head_dim * bytes_per_value
    return _total(schedule, lambda n: (n + text_tokens) * per_token)


def flops_ratio(schedule: Schedule, dims: Dims, *, tokens: int, text_tokens: int) -> Any:
    """Relate the FLOPs of a schedule to those of the model with all its ``tokens``."""
    full = [tokens] * len(schedule)
    return flops(schedule, dims, text_tokens=text_tokens) / flops(
        full, dims, text_tokens=text_tokens
    )


def kv_bytes_ratio(schedule: Schedule, dims: Dims, *, tokens: int, text_tokens: int) -> Any:
    """Relate the KV bytes of a schedule to those of the model with all its ``tokens``."""
    full = [tokens] * len(schedule)
    return kv_bytes(schedule, dims, text_tokens=text_tokens) / kv_bytes(
        full, dims, text_tokens=text_tokens
    )


def rescale(
    keep_fracs: Sequence[float], *, tokens: int, budget: int, k_min: int = K_MIN
) -> list[int]:
    """Meet another final budget with one exponent s on all keep fractions: Π k_i^s = budget / N_0.

    Returns one count a step: monotone, the last exactly ``budget``, none below ``k_min``. If no
    step reduces, all share the reduction equally.
    """
    if not k_min <= budget <= tokens:
        raise ConfigError(
            f"expected a final budget between {k_min} and {tokens} tokens, found {budget}"
        )
    if not keep_fracs:
        raise ConfigError(
            f"expected at least one step to reduce {tokens} tokens to {budget}, found none"
        )
    kept = prod(keep_fracs)
    logs = [log(frac) for frac in keep_fracs] if kept < 1.0 else [-1.0] * len(keep_fracs)
    share = log(budget / tokens) / sum(logs)
    counts: list[int] = []
    exponent = 0.0
    for value in logs:
        exponent += share * value
        count = round(tokens * exp(exponent))
        counts.append(min(counts[-1] if counts else tokens, max(count, budget, k_min)))
    return [*counts[:-1], budget]


def rescale_to_mean(
    keep_fracs: Sequence[float],
    *,
    tokens: int,
    budget: float,
    mean_of: Callable[[list[int]], float],
    k_min: int,
) -> list[int]:
    """Find the largest rescaled counts whose mean tokens entering a layer stay in ``budget``."""

    def mean_at(final: int) -> float:
        return mean_of(rescale(keep_fracs, tokens=tokens, budget=final, k_min=k_min))

    reachable = bisect_right(range(k_min, tokens + 1), budget, key=mean_at)
    if reachable == 0:
        raise ConfigError(
            f"expected a mean budget of at least {mean_at(k_min):.1f} tokens, which is what these "
            f"layers can reach; found {budget}. Reduce in earlier layers, or raise the budget"
        )
    return rescale(keep_fracs, tokens=tokens, budget=k_min + reachable - 1, k_min=k_min)


def fit_to_flops(
    counts: Sequence[int], *, tokens: int, max_flops: float, flops_of: Callable[[list[int]], float]
) -> list[int] | None:
    """Rescale a plan's counts so that its FLOPs come as near a limit as they can; the last stays.

    One number scales the distances of all other counts from the last, in logarithms.

    Args:
        counts: tokens left after each step.
        tokens: N_0, which no count exceeds.
        max_flops: the limit, relative to the full model.
        flops_of: FLOPs of counts.

    Returns:
        The counts; None if even dropping down to the last at the first step exceeds the limit.
    """
    budget = counts[-1]
    most = log(tokens / budget)
    heights = [max(0.0, log(count / budget)) for count in counts[:-1]]

    def at(scale: float) -> list[int]:
        scaled = [min(scale * height, most) for height in heights]
        return [*(round(budget * exp(height)) for height in scaled), budget]

    low, high = 0.0, most / min([height for height in heights if height > 0], default=most or 1.0)
    if flops_of(at(low)) > max_flops:
        return None
    if flops_of(at(high)) <= max_flops:
        return at(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if flops_of(at(middle)) <= max_flops else (low, middle)
    return at(low)


def _total(schedule: Schedule, amount: Callable[[Any], Any]) -> Any:
    if isinstance(schedule, Tensor):
        return amount(schedule[:-1]).sum()
    return sum(amount(n) for n in schedule[:-1])
