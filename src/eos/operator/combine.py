"""Combine: what a step makes of its tokens, by the unified operator or by a prior method's own.

The unified operator covers what prior methods have in common; where an author's code does more
(recycling, size-weighted means, contextual tokens) a small named operator beside it does exactly
that. Each takes evidence, scores and a count, and returns the new tokens with their places.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.operator.mixture import scorers_of
from eos.operator.operate import Norm, Omega
from eos.operator.originals.prumerge import PruMerged, class_attention, prumerge, prumerge_plus
from eos.operator.originals.sparsevlm import cluster_count, pool_size, recycle
from eos.operator.originals.tome import merge_to
from eos.operator.originals.visionzip import zip_tokens
from eos.operator.reducer import reduce_tokens
from eos.operator.scorers import Evidence, Need, Vision
from eos.operator.select import select
from eos.tokens import Tokens, take

CONTEXTUAL_SHARE = 10 / 64  # of VisionZip's tokens: 10 of 64, 20 of 128, 30 of 192


@dataclass(frozen=True)
class Combined:
    """Tokens after a step.

    Attributes:
        states: the new tokens, ``[B, K, D]``; None if they are the old ones at ``places``.
        places: which of the N old places they take, ``[B, K]``, ascending.
        sizes: how many tokens each stands for, ``[B, K]``, if the method counts.
    """

    states: Tensor | None
    places: Tensor
    sizes: Tensor | None = None


def unified(evidence: Evidence, scores: Tensor, *, keep: int, omega: Omega, norm: Norm) -> Combined:
    """Apply the unified operator (Definition 2.1)."""
    everything = torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape)
    tokens = Tokens(evidence.states, everything)
    if omega.prunes:
        return Combined(None, select(scores, keep).kept)
    reduced, _ = reduce_tokens(tokens, scores, keep=keep, omega=omega, norm=norm)
    return Combined(reduced.states, reduced.positions)


def recycled(evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None) -> Combined:
    """Keep the best and merge the best of the rest into a few (SparseVLM v1, arXiv 2410.04417)."""
    tokens = scores.shape[-1]
    fits = [k for k in range(1, keep + 1) if k + _clusters(tokens - k) == keep]
    if not fits:
        raise ConfigError(
            f"expected a count that recycling {tokens} tokens can reach; found {keep}"
        )
    kept = fits[-1]
    chosen = select(scores, kept)
    clusters = recycle(take(evidence.states, chosen.dropped), scores.gather(1, chosen.dropped))
    # merged tokens come after the kept ones, in the last places that became free
    free = chosen.dropped[:, -clusters.shape[1] :]
    places = torch.cat([chosen.kept, free], dim=1).sort(dim=1).values
    return Combined(torch.cat([take(evidence.states, chosen.kept), clusters], dim=1), places)


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


def contextual(evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None) -> Combined:
    """Zip the image before the projector, class token included (VisionZip, arXiv 2412.04467)."""
    vision = _vision(evidence)
    share = round(keep * CONTEXTUAL_SHARE)
    zipped = zip_tokens(
        vision.states, vision.cls_attention, vision.keys, dominant=keep - share, contextual=share
    )
    return _in_front(vision.project(zipped.states), scores)


def prumerged(evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None) -> Combined:
    """Merge by class attention before the projector (PruMerge, arXiv 2403.15388)."""
    return _prumerged(evidence, scores, lambda *image: prumerge(*image, keep=keep - 1))


def prumerged_plus(
    evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None
) -> Combined:
    """Merge by class attention and spatial samples (PruMerge+); 2k + 1 tokens come out."""
    if keep % 2 == 0:
        raise ConfigError(
            f"expected an odd count, since PruMerge+ makes 2k + 1 tokens; found {keep}"
        )
    return _prumerged(evidence, scores, lambda *image: prumerge_plus(*image, keep=keep // 2))


def _prumerged(
    evidence: Evidence, scores: Tensor, merge: Callable[[Tensor, Tensor, Tensor], PruMerged]
) -> Combined:
    vision = _vision(evidence)
    images = [
        merge(states[1:], keys[1:], class_attention(queries, keys)).states
        for states, queries, keys in zip(vision.states, *vision.last, strict=True)
    ]
    return _in_front(vision.project(torch.stack(images)), scores)


def _in_front(states: Tensor, scores: Tensor) -> Combined:
    """Let new tokens take the first places: what they had before is gone."""
    places = torch.arange(states.shape[1], device=scores.device)
    return Combined(states, places.expand(states.shape[:2]))


def _clusters(pruned: int) -> int:
    return cluster_count(pool_size(pruned)) if pruned else 0


def _vision(evidence: Evidence) -> Vision:
    if evidence.vision is None:
        raise ConfigError(
            "this operator needs one image a sample and a vision tower with a class token, before "
            "the decoder (layer -1); use the method's fixed point instead"
        )
    return evidence.vision


# the authors' own, by the `kind` of a plan's operator
ORIGINALS: dict[str, Callable[..., Combined]] = {
    "recycle": recycled,
    "bipartite": bipartite,
    "contextual": contextual,
    "prumerge": prumerged,
    "prumerge+": prumerged_plus,
}
# what of `Evidence` they use
NEEDS: dict[str, tuple[Need, ...]] = {
    "bipartite": ("keys",),
    "contextual": ("vision",),
    "prumerge": ("vision",),
    "prumerge+": ("vision",),
}


def needs(score: str, kind: str) -> set[Need]:
    """List the evidence that a scorer and an operator need together."""
    scored = [need for scorer in scorers_of(score) for need in scorer.needs]
    return {*scored, *NEEDS.get(kind, ())}
