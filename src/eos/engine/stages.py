"""Stages: which tokens of a prompt a layer works on, and its other inputs cut to them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eos.engine.groups import Group, Outcome
from eos.engine.masks import cut, hide
from eos.models.backbone import Backbone, LayerCall
from eos.tokens import take


@dataclass(frozen=True)
class Stage:
    """Which tokens of the prompt a layer works on.

    Attributes:
        slots: their places in the full prompt, ``[B, T']``, ascending.
        visual: which of them are visual, ``[B, T']``.
        positions: new position ids ``[B, T']`` if a step re-indexed them, else None.
        weights: attention weight of each token, ``[B, T']``, with a derivative: 1, less if it is
            kept in part, more if it stands for others; a token of weight 0 is kept for its
            derivative only. None if all are 1.
        filler: dropped tokens that stand where a sample would be shorter than others, ``[B, T']``:
            masked, and no longer visual. None if there are none.
    """

    slots: Tensor
    visual: Tensor
    positions: Tensor | None = None
    weights: Tensor | None = None
    filler: Tensor | None = None

    @property
    def present(self) -> Tensor:
        """Mask of tokens that are not filler, of a weight above 0, ``[B, T']``."""
        present = torch.ones_like(self.visual) if self.weights is None else self.weights > 0
        return present if self.filler is None else present & ~self.filler

    @property
    def carries(self) -> bool:
        """Whether some tokens are kept for their derivative only."""
        return self.weights is not None and not bool((self.weights > 0).all())

    def weights_or_ones(self, dtype: torch.dtype) -> Tensor:
        """Attention weights, ``[B, T']``; ones in ``dtype`` if there are none."""
        if self.weights is None:
            return torch.ones_like(self.slots, dtype=dtype)
        return self.weights

    def to(self, like: Tensor) -> "Stage":
        """Move to the device of ``like``."""
        if self.slots.device == like.device:
            return self
        return self._each(lambda x: x.to(like.device))

    def kept(self, index: Tensor) -> "Stage":
        """Select the tokens at ``index`` ``[B, T'']``."""
        return self._each(lambda x: x.gather(1, index))

    def of(self, group: Group) -> "Stage":
        """Select the samples of a group."""
        return self if group.members is None else self._each(group.of)

    def filled(self, filler: Tensor) -> "Stage":
        """Mark tokens as filler, ``[B, T']``."""
        if not bool(filler.any()):
            return replace(self, filler=None)
        weights = None if self.weights is None else self.weights.masked_fill(filler, 1.0)
        return replace(self, visual=self.visual & ~filler, weights=weights, filler=filler)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Stage":
        given = (self.positions, self.weights, self.filler)
        rest = (None if x is None else change(x) for x in given)
        return Stage(change(self.slots), change(self.visual), *rest)


def at_stage(backbone: Backbone, call: LayerCall, stage: Stage) -> LayerCall:
    """Cut mask, rotary embedding and positions, which the model made for the full prompt."""
    mask, slots, ids = cut(call.mask, stage.slots), stage.slots, call.position_ids
    if stage.filler is not None:
        if mask is None:  # causal as it is, which cannot leave out a token
            mask = backbone.padded_mask(call.states, ~stage.filler)
        else:
            mask = hide(mask, stage.filler)
    if stage.positions is not None:
        rotary = backbone.rotary(call.states, stage.positions, call.index)
        return replace(call, mask=mask, rotary=rotary, position_ids=stage.positions)
    # a model spread over devices leaves these tensors where they were made
    cos, sin = (take(x, slots.to(x.device)) for x in call.rotary)
    if ids is not None:
        ids = ids.take_along_dim(slots.to(ids.device), dim=1)
    return replace(call, mask=mask, rotary=(cos, sin), position_ids=ids)


def places_of(mask: Tensor) -> Tensor:
    """Where a mask is true, equally often in each row: ``[B, n]``, ascending."""
    return mask.nonzero()[:, 1].view(len(mask), -1)


def add_weights(stage: Stage, places: Tensor, added: Tensor) -> Tensor:
    """Add to the attention weights of the tokens at ``places`` ``[B, K]``: all, ``[B, T']``."""
    before = stage.weights_or_ones(added.dtype)
    return before.scatter_add(1, places, added.to(before.dtype))


def joined(stage: Stage, outcomes: Iterable[tuple[Group, Outcome]]) -> tuple[Stage, Tensor]:
    """Give a batch's stage the weights of its groups' outcomes; and which tokens stay, [B, T']."""
    stays = torch.ones_like(stage.visual) if stage.filler is None else ~stage.filler
    for group, outcome in outcomes:
        stays = group.put(stays, outcome.stays)
        if outcome.weights is not None:
            before = stage.weights_or_ones(outcome.weights.dtype)
            stage = replace(stage, weights=group.put(before, outcome.weights))
    return stage, stays if stage.filler is None else stays & ~stage.filler


def equalise_lengths(stays: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """List as many tokens in every sample as the one with the most that stay has.

    Shorter ones are filled up, first with padding, then with tokens that do not stay, so that every
    token keeps a place of its own in the prompt.

    Args:
        stays: which tokens stay, ``[B, T']``.
        valid: which of them are no padding, ``[B, T']``.

    Returns:
        Their places, ``[B, T'']``, ascending, and which of those do not stay, ``[B, T'']``.
    """
    needed = stays & valid
    rank = torch.where(needed, 0, torch.where(valid, 2, 1))
    most = int(needed.sum(dim=1).max())
    index = rank.argsort(dim=1, stable=True)[:, :most].sort(dim=1).values
    return index, rank.gather(1, index) == 2
