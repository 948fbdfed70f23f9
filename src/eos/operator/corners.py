"""The four canonical operators, written out one by one (Listing 2).

Reference code for `eos verify` and the tests: slow, literal, and sharing nothing with `operate`, so
that an agreement between the two says something. Unbatched: anchors ``[K, D]``, candidates
``[M, D]``, scores ``[M]``.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def prune(anchors: Tensor, candidates: Tensor, scores: Tensor) -> Tensor:
    """Keep the anchors, forget the rest (Eqs. 15-16)."""
    return anchors.clone()


def merge(anchors: Tensor, candidates: Tensor, scores: Tensor) -> Tensor:
    """Add each candidate to its single nearest anchor (Eqs. 17-18)."""
    nearest = _cosine(candidates, anchors).argmax(dim=-1)
    merged = anchors.clone()
    for candidate, anchor in zip(candidates, nearest.tolist(), strict=True):
        merged[anchor] += candidate
    return merged


def pool(anchors: Tensor, candidates: Tensor, scores: Tensor) -> Tensor:
    """Give every anchor the same share of all candidates (Eqs. 19-20)."""
    return anchors + candidates.sum(dim=0, keepdim=True) / anchors.shape[0]


def reweight(anchors: Tensor, candidates: Tensor, scores: Tensor, strength: float = 1.5) -> Tensor:
    """Lengthen anchors that stand for important candidates; move no content (Eqs. 21-22)."""
    nearness = torch.softmax(_cosine(candidates, anchors), dim=-1)
    importance = (nearness * torch.softmax(scores, dim=-1)[:, None]).sum(dim=0)
    return anchors * (1.0 + strength * importance[:, None])


def _cosine(left: Tensor, right: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize
    return unit(left, dim=-1) @ unit(right, dim=-1).t()


CORNERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "prune": prune,
    "merge": merge,
    "pool": pool,
    "reweight": reweight,
}
