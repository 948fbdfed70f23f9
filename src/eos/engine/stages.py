"""Stages: which tokens of a prompt a layer works on, and its other inputs cut to them."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from eos.engine.masks import cut, cut_columns, rebuild
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
    def counts(self) -> Tensor:
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


@dataclass
class Trace:
    """What each layer's cache holds of a reduced prompt, for the decoding that follows.

    Attributes:
        valid: which of the prompt's tokens are not padding, ``[B, T]``.
        like: a corner of the prompt's mask, which shows its form; None if it had none.
        stages: by layer.
    """

    valid: Tensor
    like: Tensor | None
    stages: dict[int, Stage] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Length of the full prompt."""
        return self.valid.shape[1]


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


def continued(backbone: Backbone, call: LayerCall, trace: Trace) -> LayerCall:
    """Fit a layer's mask and positions to what its cache holds."""
    assert call.cache is not None
    stage, new = trace.stages[call.index].to(call.states), call.states.shape[1]
    later = call.cache.get_seq_length(call.index) - stage.slots.shape[1] + new
    total = trace.tokens + later
    mask, source = call.mask, trace.stages[backbone.mask_source(call.index)]
    like = mask if trace.like is None else trace.like
    if source.slots.shape[1] < trace.tokens and like is not None:
        # The model sized this mask by a layer that does not hold the whole prompt.
        window = backbone.window(call.index)
        mask = rebuild(like, trace.valid, new=new, later=later, window=window)
    if mask is not None:
        added = torch.arange(trace.tokens, total, device=stage.slots.device)
        columns = torch.cat([stage.slots, added.expand(len(stage.slots), -1)], dim=1)
        columns = columns[:, -(backbone.held(call.cache, call.index) + new) :]
        call = replace(call, mask=cut_columns(mask, columns, total=total))
    if stage.positions is not None:
        start = stage.positions[:, -1:] + later - new + 1
        ids = start + torch.arange(new, device=start.device)
        call = replace(call, rotary=backbone.rotary(call.states, ids, call.index), position_ids=ids)
    return call


def places_of(mask: Tensor) -> Tensor:
    """Where a mask is true, equally often in each row: ``[B, n]``, ascending."""
    return mask.nonzero()[:, 1].view(len(mask), -1)
