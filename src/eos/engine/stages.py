"""Stages: which tokens of a prompt a layer works on, and its other inputs cut to them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eos.engine.masks import cut
from eos.models.backbone import Backbone, LayerCall
from eos.tokens import take


@dataclass(frozen=True)
class Stage:
    """Which tokens of the prompt a layer works on.

    Attributes:
        slots: their places in the full prompt, ``[B, T']``, ascending.
        visual: which of them are visual, ``[B, T']``.
        positions: new position ids ``[B, T']`` if a step re-indexed them, else None.
        weights: attention weight of each token, ``[B, T']``, with a derivative: 1, or less if
            it is kept in part; a token of weight 0 is kept for its derivative only. None if all
            are 1.
    """

    slots: Tensor
    visual: Tensor
    positions: Tensor | None = None
    weights: Tensor | None = None

    @property
    def present(self) -> Tensor:
        """Mask of tokens with a weight above 0, ``[B, T']``: all but those of the band."""
        if self.weights is None:
            return torch.ones_like(self.visual)
        return self.weights > 0

    def to(self, like: Tensor) -> "Stage":
        """Move to the device of ``like``."""
        if self.slots.device == like.device:
            return self
        slots, visual = self.slots.to(like.device), self.visual.to(like.device)
        given = (self.positions, self.weights)
        positions, weights = (x if x is None else x.to(like.device) for x in given)
        return Stage(slots, visual, positions, weights)

    def kept(self, index: Tensor) -> "Stage":
        """Select the tokens at ``index`` ``[B, T'']``."""
        given = (self.positions, self.weights)
        positions, weights = (x if x is None else x.gather(1, index) for x in given)
        slots, visual = self.slots.gather(1, index), self.visual.gather(1, index)
        return Stage(slots, visual, positions, weights)


def at_stage(backbone: Backbone, call: LayerCall, stage: Stage) -> LayerCall:
    """Cut mask, rotary embedding and positions, which the model made for the full prompt."""
    mask, slots, ids = cut(call.mask, stage.slots), stage.slots, call.position_ids
    if stage.positions is not None:
        rotary = backbone.rotary(call.states, stage.positions, call.index)
        return replace(call, mask=mask, rotary=rotary, position_ids=stage.positions)
    # a model spread over devices leaves these tensors where they were made
    cos, sin = (take(x.expand(len(slots), -1, -1), slots.to(x.device)) for x in call.rotary)
    if ids is not None:
        ids = ids.expand(len(slots), -1).gather(1, slots.to(ids.device))
    return replace(call, mask=mask, rotary=(cos, sin), position_ids=ids)


def places_of(mask: Tensor) -> Tensor:
    """Where a mask is true, equally often in each row: ``[B, n]``, ascending."""
    return mask.nonzero()[:, 1].view(len(mask), -1)
