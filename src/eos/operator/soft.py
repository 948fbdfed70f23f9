"""Soft: a choice whose boundary is not sharp. Tokens next to the threshold are kept in part.

A hard choice has weights of 0 and 1, where what a token adds has long saturated: derivatives there
have the right order over layers, but not the size of a true difference. Here the weight of a token
is its keep probability, in value and derivative.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from eos.operator.select import Selection, keep_probability, select

# A token kept with less probability is dropped. Of a key that draws most of the attention, a small
# part does most of what the whole does: with 0.02 derivatives are smaller by up to a tenth or so.
PARTIAL = 1e-3
SPARE = 0.01  # tokens that a choice drops at least, in sum of keep probabilities
LEAST = 1e-14  # a weight that is nothing beside the others, in float32 and bfloat16


@dataclass(frozen=True)
class SoftChoice:
    """The outcome of one selection with a soft boundary.

    Attributes:
        selected: the hard choice of K among the N' tokens that a hard boundary would have left so
            far: as many as there would be, those of the highest weights.
        staying: indices of the M ≥ K tokens that stay, ``[B, M]``.
        weights: of all N tokens, ``[B, N]``, above 0; those that stay sum to K, nearly.
    """

    selected: Selection
    staying: Tensor
    weights: Tensor


def soft_choice(
    scores: Tensor,
    before: Tensor,
    *,
    compression: float | Tensor,
    entering: int,
    keep: int,
    selection: str,
    alpha: float,
) -> SoftChoice:
    """Keep ``keep`` of N tokens, those near the threshold in part.

    Samples may differ in how many tokens are likely enough to stay. The shorter ones are filled up
    with tokens of weight `LEAST`, so that a sample gives the same in every batch.

    Args:
        scores: importance q, ``[B, N]``.
        before: the tokens' weights after earlier choices, ``[B, N]``.
        compression: g·c, a scalar.
        entering: N', the count before this choice.
        keep: K.
        selection: ``marginal`` or ``rank``.
        alpha: sharpness α of the boundary.
    """
    before = before.to(torch.promote_types(before.dtype, torch.float32))  # counts are sums of it
    pool = before.detach().topk(entering, dim=1).indices.sort(dim=1).values
    among = select(scores.gather(1, pool), keep)
    selected = Selection(pool.gather(1, among.kept), pool.gather(1, among.dropped))
    probability = keep_probability(
        scores,
        _at_count(compression, keep, before),
        keep,
        selection=selection,
        alpha=alpha,
        weights=before,
    )
    weights = before * probability
    own = (weights > PARTIAL).scatter(1, selected.kept, True)
    most = int(own.sum(dim=1).max())
    staying = (weights.detach() + own).topk(most, dim=1).indices
    return SoftChoice(selected, staying, torch.where(own, weights.clamp_min(LEAST), LEAST))


def _at_count(compression: float | Tensor, keep: int, before: Tensor) -> Tensor:
    """Round a compression to that of the deployed count, ``[B, 1]``; its derivative stays."""
    given = torch.as_tensor(compression).to(before)
    total = before.detach().sum(dim=1, keepdim=True)
    # where nothing is dropped yet there is a derivative, too: the threshold must stay finite
    value = (1.0 - keep / total).maximum(SPARE / total)
    return value + (given - given.detach())
