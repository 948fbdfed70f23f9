"""Groups: samples of a batch that have equally many visual tokens, which a step reduces together.

Scorers, selection and operators work on one group at a time and never see padding. A batch whose
samples have the same number is one group, of which nothing is copied. Each sample keeps the plan's
fractions of its own tokens, as it would by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Group:
    """Samples with equally many visual tokens, in one forward pass.

    Attributes:
        tokens: how many, in the full prompt.
        members: their places in the batch; None if they are the whole batch.
        sizes: how many tokens each visual one stands for, ``[b, N]``, if the operator tracks it.
        hard_count: visual tokens under a hard boundary, if the boundary is soft.
    """

    tokens: int
    members: list[int] | None = None
    sizes: Tensor | None = None
    hard_count: int | None = None

    def of(self, values: Tensor) -> Tensor:
        """Select the group's rows of ``values`` ``[B, ...]``."""
        return values if self.members is None else values[self.members]

    def put(self, values: Tensor, new: Tensor) -> Tensor:
        """Replace the group's rows of ``values`` ``[B, ...]`` by ``new`` ``[b, ...]``."""
        if self.members is None:
            return new
        rows = torch.tensor(self.members, device=values.device)
        return values.index_put((rows,), new)

    def keep(self, fraction: float, left: int) -> int:
        """Count what a step keeps of the ``left`` visual tokens of each sample."""
        return min(left, max(1, round(fraction * self.tokens)))


@dataclass(frozen=True)
class Outcome:
    """What a step decides for one group.

    Attributes:
        stays: which of the T' tokens stay, ``[b, T']``.
        anchors: places ``[b, K]`` among the T' and new states ``[b, K, D]``; None if none change.
        weights: new attention weights, ``[b, T']``; None if they are as before.
    """

    stays: Tensor
    anchors: tuple[Tensor, Tensor] | None = None
    weights: Tensor | None = None


def group_samples(counts: Sequence[int]) -> list[Group]:
    """Group samples by their numbers of visual tokens; those without any are in no group."""
    kinds = sorted(set(counts))
    if len(kinds) == 1:
        return [Group(kinds[0])]
    return [
        Group(kind, [i for i, count in enumerate(counts) if count == kind])
        for kind in kinds
        if kind
    ]
