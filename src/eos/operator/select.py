"""Select: which tokens stay, and the surrogate gradient of that choice (Eqs. 1, 11, 12).

The forward pass is the hard top-K, unless its boundary is `soft`. What differs is the *relaxed*
keep probability whose derivative stands in for that of the discrete choice:

``paper``     Eq. 12 literally: a sigmoid at the K-th score, times a factor through which the
              compression g·c reaches every token alike.
``marginal``  the threshold itself moves: t solves Σ σ(α(q_i - t)) = (1 - g·c) N, so the derivative
              sits on the tokens that the next change of the count would drop or admit.
``rank``      the same with ranks for scores, so that these are always a like share of the kept:
              scores have long tails, and next to their threshold may lie a handful or hundreds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eos.errors import ConfigError

ALPHA = 10.0  # α of Eq. 12: over the scores' standard deviation, or over half of the kept's ranks
BISECTIONS = 40  # halvings of the threshold's interval: past float32's resolution


@dataclass(frozen=True)
class Selection:
    """The outcome of one selection.

    Attributes:
        kept: indices of the anchors, ``[..., K]``, ascending.
        dropped: indices of the reduction candidates, ``[..., M]``, ascending.
    """

    kept: Tensor
    dropped: Tensor


def select(scores: Tensor, keep: int) -> Selection:
    """Keep the ``keep`` highest of ``scores`` ``[..., N]``; the earlier of tied tokens wins."""
    check_keep(keep, scores.shape[-1])
    order = scores.detach().argsort(dim=-1, descending=True, stable=True)
    kept, dropped = order[..., :keep], order[..., keep:]
    return Selection(kept.sort(dim=-1).values, dropped.sort(dim=-1).values)


def check_keep(keep: int, tokens: int) -> None:
    """Refuse to keep none or more than all of ``tokens``."""
    if not 1 <= keep <= tokens:
        raise ConfigError(
            f"expected to keep between 1 and {tokens} of {tokens} tokens, found {keep}"
        )


def highest(scores: Tensor, count: int) -> Tensor:
    """Index the ``count`` highest of ``scores`` ``[..., N]``, falling, earlier ties first."""
    return scores.argsort(dim=-1, descending=True, stable=True)[..., :count]


def keep_probability(
    scores: Tensor,
    compression: Tensor,
    keep: int,
    *,
    selection: str = "rank",
    alpha: float = ALPHA,
    weights: Tensor | None = None,
) -> Tensor:
    """Relax the choice of ``keep`` tokens: p_i of Eq. 12 or of a variant, ``[..., N]``.

    Args:
        scores: importance q, ``[..., N]``; standardised here, so that α means the same everywhere.
        compression: g·c of this layer, a tensor in [0, 1): a scalar or ``[..., 1]``.
        keep: K, the discrete retain count (Eq. 11).
        selection: ``paper``, ``marginal`` or ``rank``.
        alpha: sharpness α of the boundary.
        weights: what each token counts for, ``[..., N]``, if earlier choices left parts of tokens:
            then Σ w_i p_i = (1 - g·c) Σ w_i. Not with ``paper``; 1 if None.
    """
    if selection not in SELECTIONS:
        raise ConfigError(f"expected selection in {sorted(SELECTIONS)}, found {selection!r}")
    w = torch.ones_like(scores) if weights is None else weights.detach()
    w = w.to(torch.promote_types(scores.dtype, torch.float32))
    return SELECTIONS[selection](_standardised(scores, w), w, compression, keep, alpha)


def keep_weight(probability: Tensor, selected: Selection) -> Tensor:
    """Put the relaxed derivative behind the hard choice (straight-through), ``[..., N]``.

    The value is 1 for kept and 0 for dropped tokens; the derivative is that of ``probability``.
    """
    hard = torch.zeros_like(probability).scatter(-1, selected.kept, 1.0)
    return hard + (probability - probability.detach())


def _paper(q: Tensor, w: Tensor, compression: Tensor, keep: int, alpha: float) -> Tensor:
    threshold = q.detach().topk(keep, dim=-1).values[..., -1:]
    kept = 1.0 - compression
    return torch.sigmoid(alpha * (q - threshold)) * (kept / kept.detach())


def _marginal(q: Tensor, w: Tensor, compression: Tensor, keep: int, alpha: float) -> Tensor:
    total = w.sum(dim=-1, keepdim=True)
    # A threshold for all or for none lies at infinity: stay a little inside.
    count = ((1.0 - compression) * total).clamp_min(1e-3).minimum(total - 1e-3)
    start = _threshold(q.detach(), w, count.detach(), alpha)
    sigmoid = torch.sigmoid(alpha * (q - start))
    slope = (alpha * w * sigmoid * (1.0 - sigmoid)).sum(dim=-1, keepdim=True).detach()
    # A Newton step whose value is zero: it carries the implicit function's derivative in the count
    # and in the scores.
    residual = count - (w * sigmoid).sum(dim=-1, keepdim=True)
    threshold = start - (residual - residual.detach()) / slope.clamp_min(1e-12)
    return torch.sigmoid(alpha * (q - threshold))


def _rank(q: Tensor, w: Tensor, compression: Tensor, keep: int, alpha: float) -> Tensor:
    order = q.detach().argsort(dim=-1, descending=True, stable=True)
    ordered = w.gather(-1, order)
    # a rank is what counts before a token: with weights of 1 the number of better ones
    place = torch.zeros_like(q).scatter(-1, order, ordered.cumsum(dim=-1) - ordered)
    # the unit is the way from the boundary to the middle of the kept
    return _marginal(-place / (keep / 2), w, compression, keep, alpha)


@torch.no_grad()
def _threshold(q: Tensor, w: Tensor, count: Tensor, alpha: float) -> Tensor:
    """Solve Σ w_i σ(α(q_i - t)) = count for t by bisection, ``[..., 1]``."""
    reach = torch.log(torch.tensor(1e4 * q.shape[-1], dtype=q.dtype, device=q.device)) / alpha
    low = q.amin(dim=-1, keepdim=True) - reach
    high = q.amax(dim=-1, keepdim=True) + reach
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_many = (w * torch.sigmoid(alpha * (q - middle))).sum(dim=-1, keepdim=True) > count
        low, high = torch.where(too_many, middle, low), torch.where(too_many, high, middle)
    return (low + high) / 2


def _standardised(scores: Tensor, w: Tensor) -> Tensor:
    q = scores.to(torch.promote_types(scores.dtype, torch.float32))
    share = w / w.sum(dim=-1, keepdim=True)
    q = q - (share * q).sum(dim=-1, keepdim=True)
    spread = (share * q.square()).sum(dim=-1, keepdim=True).sqrt()
    return q / spread.clamp_min(1e-12)


SELECTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, int, float], Tensor]] = {
    "paper": _paper,
    "marginal": _marginal,
    "rank": _rank,
}
