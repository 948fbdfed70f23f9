"""Turns: a prompt with new images on a cache that already holds tokens.

The new tokens are a prompt of their own: their visual tokens are reduced by the plan's fractions,
scored with the queries of the new tokens over the keys of the new tokens. What the layers hold of
earlier turns stays as it is; the new tokens attend to it, and their states depend on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from eos.engine.decoding import Trace
from eos.engine.masks import cut_columns, cut_rows, hide, rebuild
from eos.engine.prompt import Prompt
from eos.engine.stages import Stage
from eos.errors import BackboneError
from eos.models.backbone import Backbone, LayerCall
from eos.models.hooks import ModelCall


@dataclass
class Earlier:
    """Earlier turns, in a pass that adds one with images.

    Attributes:
        backbone: the model.
        trace: what each layer's cache holds of them.
        prompt: the new tokens.
    """

    backbone: Backbone
    trace: Trace
    prompt: Prompt
    _masks: dict[int | None, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)

    def alone(self, call: LayerCall) -> LayerCall:
        """Restrict a layer's inputs to the new tokens."""
        masks = self._made(call)
        return replace(call, mask=None if masks is None else masks[1], cache=None)

    def together(self, call: LayerCall, own: LayerCall, stage: Stage) -> tuple[LayerCall, Stage]:
        """Add what the cache holds to the inputs ``own`` of the new tokens that are left.

        ``call`` is as the model made it. Gives the layer's inputs, and what it will then hold.
        """
        assert call.cache is not None
        before = self.trace.stages[call.index].to(own.states)
        stage = _after(before, stage, self.prompt.valid, past=self.trace.valid)
        held = self.backbone.held(call.cache, call.index) + own.states.shape[1]
        columns, masks = stage.slots[:, -held:], self._made(call)
        mask = None
        if masks is not None:
            rows = stage.slots[:, before.slots.shape[1] :] - self.trace.tokens
            whole = masks[0] if masks[0].ndim == 2 else cut_rows(masks[0], rows)
            mask = cut_columns(whole, columns, total=self.trace.tokens + self.prompt.tokens)
        if stage.filler is not None:
            # attention that is given no mask here takes 2-D ones
            mask = torch.ones_like(columns) if mask is None else mask
            mask = hide(mask, stage.filler[:, -held:])
        weights = None if stage.weights is None else stage.weights[:, -held:]
        own = replace(own, mask=mask, cache=call.cache, weights=weights)
        if stage.positions is not None:
            ids = stage.positions[:, before.slots.shape[1] :]
            rotary = self.backbone.rotary(own.states, ids, call.index)
            own = replace(own, rotary=rotary, position_ids=ids)
        return own, stage

    @property
    def valid(self) -> Tensor:
        """Which tokens of all turns are not padding, ``[B, T]``."""
        return torch.cat([self.trace.valid, self.prompt.valid], dim=1)

    def _made(self, call: LayerCall) -> tuple[Tensor, Tensor] | None:
        """Make a layer's mask for new tokens, over all tokens and over the new ones."""
        like, window = self.trace.like, self.backbone.window(call.index)
        like = call.mask if like is None else like
        if like is None:
            return None
        if window not in self._masks:
            images = self.prompt.visual if self.backbone.family.both_ways else None
            new = self.prompt.tokens
            whole = rebuild(like, self.valid, new=new, window=window, images=images)
            self._masks[window] = whole, whole[..., self.trace.tokens :].contiguous()
        return self._masks[window]


def earlier_turns(
    backbone: Backbone,
    call: ModelCall,
    *,
    prompt: Prompt,
    trace: Trace | None,
    lengths: Sequence[int],
) -> Earlier:
    """Find what layers hold before a turn with images; ``trace`` if an earlier one was reduced.

    Everything after a reduced prompt, and everything if there was none, is held by all layers,
    whose caches have had so many tokens, ``lengths``.
    """
    _check_positions(backbone, call)
    if trace is None and len(set(lengths)) > 1:
        raise BackboneError(
            "expected a cache of this block; found one whose layers hold different numbers of "
            "tokens, of which nothing is known. Keep a conversation inside one reduced block"
        )
    if trace is None:
        trace = Trace(prompt.valid.new_ones(len(prompt.valid), 0), None)
        blank = torch.zeros(len(prompt.valid), 0, dtype=torch.long, device=prompt.valid.device)
        trace.stages = {i: Stage(blank, blank.bool()) for i in range(backbone.num_layers)}
    later = lengths[0] - trace.stages[0].slots.shape[1]
    total = trace.tokens + later
    if call.padding is not None and call.padding.shape[1] == total + prompt.tokens:
        valid = call.padding[:, :total].bool()
    else:
        valid = torch.nn.functional.pad(trace.valid, (0, later), value=True)
    new = torch.arange(later, device=valid.device).expand(len(valid), -1)
    plain = Stage(new, torch.zeros_like(new, dtype=torch.bool))
    every = torch.ones_like(plain.visual)
    stages = {
        index: _after(stage.to(new), plain, every, past=trace.valid)
        for index, stage in trace.stages.items()
    }
    return Earlier(backbone, Trace(valid, trace.like, stages), prompt)


def _after(before: Stage, stage: Stage, valid: Tensor, *, past: Tensor) -> Stage:
    """Append the tokens of a turn to what a layer holds of the turns before it.

    ``valid`` and ``past``, each ``[B, T]``, mark what is no padding in the turn and before it.
    """
    positions = filler = None
    if before.positions is not None or stage.positions is not None:
        valid, start = valid.to(stage.slots.device), past.sum(dim=1, keepdim=True)
        real, start = valid.gather(1, stage.slots) & stage.present, start.to(valid.device)
        start = start if before.positions is None else before.positions[:, -1:] + 1
        new = start + (real.long().cumsum(dim=1) - 1).clamp_min(0)
        old = torch.zeros_like(before.slots) if before.positions is None else before.positions
        positions = torch.cat([old, new], dim=1)
    if before.filler is not None or stage.filler is not None:
        parts = (before, stage)
        masks = [torch.zeros_like(x.visual) if x.filler is None else x.filler for x in parts]
        filler = torch.cat(masks, dim=1)
    weights = None
    if before.weights is not None or stage.weights is not None:
        weights = torch.cat([x.weights_or_ones(torch.float32) for x in (before, stage)], dim=1)
    slots = torch.cat([before.slots, stage.slots + past.shape[1]], dim=1)
    visual = torch.cat([before.visual, stage.visual], dim=1)
    return Stage(slots, visual, positions, weights, filler)


def _check_positions(backbone: Backbone, call: ModelCall) -> None:
    """Refuse images whose tokens transformers numbers in one row, as it does after other tokens."""
    if not backbone.spatial_positions:
        return
    given, visual = call.positions, call.visual
    assert visual is not None
    if given is None or given.ndim < 3 or bool((given[-3:] == given[-1:])[:, visual].all()):
        raise BackboneError(
            "expected position_ids of the new image in three coordinates; found those of text: on "
            "a cache that holds tokens transformers numbers an image's tokens in one row. Pass "
            "position_ids as model.model.get_rope_index makes them of the whole conversation"
        )
