"""ToMe (arXiv 2210.09461): merge tokens pairwise by bipartite matching.

Decides which token goes into which, and averages them by size. What attention does with the sizes
is the caller's choice. The output of `merge_to` is *not* in spatial order: unmerged even tokens
first, then all odd ones; `bipartite` restores the order of the sequence.
"""

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.methods import Method, Preset
from eos.methods.sparsevlm import STAGE_LAYERS, STAGES_V2
from eos.operator.combine import Combined, OwnOperator
from eos.operator.operate import Omega
from eos.operator.scorers import Evidence
from eos.operator.select import check_keep
from eos.tokens import take


@dataclass(frozen=True)
class Merged:
    """Tokens after merging.

    Attributes:
        states: size-weighted means, ``[B, K, D]``.
        sizes: how much each token stands for, ``[B, K]``.
        metric: merged like the states, ``[B, K, C]``; the states themselves if none was given.
        source: for every input token the output token it went to, ``[B, N]``.
    """

    states: Tensor
    sizes: Tensor
    metric: Tensor
    source: Tensor


def bipartite(evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None) -> Combined:
    """Merge pairwise by the keys, means weighted by size (ToMe, arXiv 2210.09461)."""
    keys = None if evidence.keys is None else evidence.keys.mean(dim=1)
    if sizes is None:
        sizes = torch.ones_like(scores)
    merged = merge_to(evidence.states, keys, sizes.to(evidence.states), keep=keep)
    # back to the order of the sequence: a merged token stands where its first part stood
    places = torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape)
    first = torch.full_like(merged.sizes, scores.shape[-1], dtype=torch.long)
    first = first.scatter_reduce(1, merged.source, places, "amin")
    order = first.argsort(dim=1)
    return Combined(
        take(merged.states, order), first.gather(1, order), merged.sizes.gather(1, order)
    )


def bipartite_step(
    states: Tensor, metric: Tensor | None, sizes: Tensor, *, merge: int, protected: int = 0
) -> Merged:
    """Merge the ``merge`` most similar pairs of an even- and an odd-index token.

    Args:
        states: tokens, ``[B, N, D]``.
        metric: what similarity (cosine) is measured on, ``[B, N, C]``; ``None``: the states.
        sizes: ``[B, N]``, ones at first.
        merge: pairs to merge; at most half of the unprotected tokens can go in one step.
        protected: 1 if the first token is a class token, which is never merged away, else 0.
    """
    _check(states, metric, sizes, protected)
    tokens = states.shape[1]
    merge = min(merge, (tokens - protected) // 2)
    if merge <= 0:  # as upstream: nothing moves, not even the order
        every = torch.arange(tokens, device=states.device).expand(sizes.shape)
        return Merged(states, sizes, states if metric is None else metric, every)
    source = _match(states if metric is None else metric, merge=merge, protected=protected)
    merged_sizes = sizes.new_zeros(len(sizes), tokens - merge).scatter_add(1, source, sizes)
    merged = _average(states, sizes, merged_sizes, source)
    carried = merged if metric is None else _average(metric, sizes, merged_sizes, source)
    return Merged(merged, merged_sizes, carried, source)


def merge_to(states: Tensor, metric: Tensor | None, sizes: Tensor, *, keep: int) -> Merged:
    """Repeat `bipartite_step` until ``keep`` tokens are left.

    ToMe takes a new metric from each block's keys. Within one place there is none to take: the
    given ``metric`` is merged along with the tokens, or, if ``None``, the merged tokens themselves
    are compared.
    """
    check_keep(keep, states.shape[1])
    merged = bipartite_step(states, metric, sizes, merge=0)
    while (left := merged.states.shape[1]) > keep:
        carried = None if metric is None else merged.metric
        step = bipartite_step(merged.states, carried, merged.sizes, merge=left - keep)
        merged = replace(step, source=step.source.gather(1, merged.source))
    return merged


def _match(metric: Tensor, *, merge: int, protected: int) -> Tensor:
    """Send every token to its output index, ``[B, N]``."""
    unit = torch.nn.functional.normalize(metric, dim=-1)
    similarity = unit[:, ::2] @ unit[:, 1::2].mT
    if protected:
        similarity[:, 0] = -torch.inf
    best, partner = similarity.max(dim=-1)
    order = best.argsort(dim=-1, descending=True, stable=True)
    stay = order[:, merge:]
    if protected:
        stay = stay.sort(dim=-1).values  # keeps the class token first
    unmerged = stay.shape[1]
    rank = torch.arange(metric.shape[1], device=metric.device)
    source = partner.new_empty(metric.shape[:2])
    source[:, ::2] = (partner + unmerged).scatter(1, stay, rank[:unmerged].expand_as(stay))
    source[:, 1::2] = rank[: similarity.shape[2]] + unmerged
    return source


def _average(values: Tensor, sizes: Tensor, merged_sizes: Tensor, source: Tensor) -> Tensor:
    """Average the rows that share a destination, weighted by size."""
    weighted = values * sizes.unsqueeze(-1)
    total = values.new_zeros(*merged_sizes.shape, values.shape[-1])
    total = total.scatter_add(1, source.unsqueeze(-1).expand_as(weighted), weighted)
    return total / merged_sizes.unsqueeze(-1)


def _check(states: Tensor, metric: Tensor | None, sizes: Tensor, protected: int) -> None:
    if states.ndim != 3 or sizes.shape != states.shape[:2]:
        raise ConfigError(
            "expected states [B, N, D] and sizes [B, N]; found "
            f"{[*states.shape]} and {[*sizes.shape]}"
        )
    if metric is not None and metric.shape[:2] != states.shape[:2]:
        raise ConfigError(
            f"expected a metric of {[*states.shape[:2]]} rows, found {[*metric.shape]}"
        )
    if protected not in (0, 1):
        raise ConfigError(f"expected 0 or 1 protected tokens (a class token), found {protected}")


BIPARTITE = OwnOperator("bipartite", bipartite, needs=("keys",))
METHOD = Method(
    paper="arXiv 2210.09461",
    title="Token Merging: Your ViT But Faster",
    operators=(BIPARTITE,),
    presets=(
        Preset(
            name="tome-original",
            what="Bipartite matching on the layer's keys, means weighted by size, at SparseVLM's "
            "layers.",
            score="key-norm",
            layers=STAGE_LAYERS,
            published=STAGES_V2,
            operator=BIPARTITE,
        ),
        Preset(
            name="tome",
            what="Add each token to its nearest anchor: the merge corner at SparseVLM's layers, "
            "as the EOS paper compares it.",
            score="text-raters",
            layers=STAGE_LAYERS,
            published=STAGES_V2,
            operator=Omega(gamma=1.0, tau=0.0, theta=-inf, rho=0.0, nu=0.0),
        ),
    ),
)
