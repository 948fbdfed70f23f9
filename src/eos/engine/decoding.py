"""Decoding: what the passes after a reduced prompt need to know about it.

Layers of a reduced prompt differ in how many tokens their caches hold. A `Trace` records which, and
each later pass gets masks and positions of exactly those tokens.
"""

from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache

from eos.engine.masks import cut_columns, hide, rebuild
from eos.engine.stages import Stage
from eos.models.backbone import Backbone, LayerCall
from eos.models.hooks import ModelCall


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


@dataclass
class Decoding:
    """Prompts of earlier passes, by cache; without a cache, the ids and prompt length of the last.

    The only state that outlives a forward pass.
    """

    traces: WeakKeyDictionary[Cache, Trace] = field(default_factory=WeakKeyDictionary)
    last_uncached: tuple[Tensor, int] | None = None

    def trace_of(self, cache: Cache | None) -> Trace | None:
        """Find the trace of a cache that already holds tokens of a reduced prompt."""
        if cache is None or not cache.get_seq_length():
            return None
        return self.traces.get(cache)

    def record(self, call: LayerCall, stage: Stage, valid: Tensor) -> None:
        """Record which tokens a layer is about to cache."""
        if call.cache is None:
            return
        if call.index == 0:
            like = None if call.mask is None else call.mask[..., :1]
            self.traces[call.cache] = Trace(valid, like)
        trace = self.traces[call.cache]
        if trace.like is None and stage.filler is not None and call.mask is not None:
            trace.like = call.mask[..., :1]
        trace.stages[call.index] = stage

    def prompt_length(self, model: ModelCall, layer: LayerCall) -> int:
        """Count the prompt's tokens: the whole text, unless it is decoded without a cache.

        Decoding without a cache passes the whole text again, one token longer each time. The
        prompt must be scored as it was the first time, or tokens would come and go.
        """
        ids, length = model.ids, layer.states.shape[1]
        assert ids is not None
        if layer.cache is not None or model.answer is not None:
            return length
        if self.last_uncached is not None:
            last, first = self.last_uncached
            longer = ids.shape == (len(last), last.shape[1] + 1)
            if longer and torch.equal(ids[:, :first], last[:, :first]):  # beams may change places
                length = first
        self.last_uncached = ids, length
        return length


def continued(backbone: Backbone, call: LayerCall, trace: Trace) -> LayerCall:
    """Fit a layer's mask, positions and attention weights to what its cache holds."""
    assert call.cache is not None
    stage, new = trace.stages[call.index].to(call.states), call.states.shape[1]
    later = call.cache.get_seq_length(call.index) - stage.slots.shape[1] + new
    total, held = trace.tokens + later, backbone.held(call.cache, call.index) + new
    mask, source = call.mask, trace.stages[backbone.mask_source(call.index)]
    like = mask if trace.like is None else trace.like
    misfit = source.slots.shape[1] < trace.tokens or (mask is None and stage.filler is not None)
    if misfit and like is not None:
        # The model sized this mask by a layer that does not hold the whole prompt, or made none.
        window = backbone.window(call.index)
        mask = rebuild(like, trace.valid, new=new, later=later, window=window)
    if mask is not None:
        added = torch.arange(trace.tokens, total, device=stage.slots.device)
        columns = torch.cat([stage.slots, added.expand(len(stage.slots), -1)], dim=1)
        mask = cut_columns(mask, columns[:, -held:], total=total)
        if stage.filler is not None:
            mask = hide(mask, pad(stage.filler, (0, later))[:, -held:])
        call = replace(call, mask=mask)
    if stage.positions is not None:
        start = stage.positions[:, -1:] + later - new + 1
        ids = start + torch.arange(new, device=start.device)
        call = replace(call, rotary=backbone.rotary(call.states, ids, call.index), position_ids=ids)
    if stage.weights is not None:
        call = replace(call, weights=pad(stage.weights, (0, later), value=1.0)[:, -held:])
    return call
