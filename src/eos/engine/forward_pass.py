"""Forward pass: one object is one pass of a backbone under a plan.

It is given everything at construction, is called before every decoder layer and before the final
norm (`eos.models.hooks`), and is dropped afterwards. Which tokens are left is its `stage`; how a
step chooses and combines them, group by group, is the function ``reduce`` (`eos.engine.steps` for
plans, `eos.engine.relaxed_steps` for Θ).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from eos.engine.decoding import Decoding, Trace, continued
from eos.engine.evidence import StepContext
from eos.engine.groups import Group, Outcome, group_samples
from eos.engine.prompt import Prompt, find_raters, read_prompt
from eos.engine.reference import Reference
from eos.engine.stages import Stage, at_stage, equalise_lengths, joined, places_of
from eos.engine.steps import GroupStep
from eos.engine.turns import Earlier, earlier_turns
from eos.errors import BackboneError
from eos.models.backbone import Backbone, KeyTap, LayerCall
from eos.models.hooks import ModelCall
from eos.space.mixture import scorers_of
from eos.space.plan import Plan
from eos.space.step import Step
from eos.tokens import take


@dataclass
class ForwardPass:
    """One forward pass.

    Attributes:
        backbone: the model.
        call: the model's inputs.
        plan: its steps.
        reduce: executes a step on a group of samples; None if nothing changes.
        decoding: what earlier passes left.
        weighted: whether tokens carry attention weights with gradients; then nothing is cached.
        reference: the full model run beside this one for alignment, or None.
        logit_positions: places ``[P]`` whose final states (and so logits) are needed; None for all.
        prompt: of a pass that reduces; set before the first layer.
        groups: samples with equally many visual tokens.
        stage: the tokens that are left.
        trace: of a pass that continues a reduced prompt.
        earlier: the turns before, of a pass that reduces a later one.
        previous: inputs of the layer before.
        shortened: whether any token was dropped.
    """

    backbone: Backbone
    call: ModelCall
    plan: Plan
    reduce: Callable[[GroupStep], Outcome | None]
    decoding: Decoding
    weighted: bool = False
    reference: Reference | None = None
    logit_positions: Tensor | None = None
    prompt: Prompt | None = field(default=None, init=False)
    groups: list[Group] = field(default_factory=list, init=False)
    stage: Stage | None = field(default=None, init=False)
    trace: Trace | None = field(default=None, init=False)
    earlier: Earlier | None = field(default=None, init=False)
    previous: LayerCall | None = field(default=None, init=False)
    shortened: bool = field(default=False, init=False)
    _cuts: dict[tuple[int, int], LayerCall] = field(default_factory=dict, init=False)

    def enter(self, call: LayerCall) -> LayerCall:
        """Replace a layer's inputs by those of the tokens that are left."""
        if call.index == 0:
            self._open(call)
        if self.trace is not None:
            return continued(self.backbone, call, self.trace)
        if self.prompt is None or self.stage is None:
            return call if call.added is None else replace(call, states=call.states + call.added)
        self.stage, self.prompt = self.stage.to(call.states), self.prompt.to(call.states)
        given, full = call, call if self.earlier is None else self.earlier.alone(call)
        call = full
        if call.added is not None:
            call = replace(call, states=call.states + take(call.added, self.stage.slots))
        call = self._between_layers(call, full)
        if self.shortened:
            call = self._cut(call)
        if self.weighted and torch.is_grad_enabled():
            # nothing is decoded from a pass with gradients, and a cache would hold on to it
            call = replace(call, weights=self.stage.weights, tap=KeyTap(), cache=None)
        elif self.stage.weights is not None:
            call = replace(call, weights=self.stage.weights)
        self.previous = call
        if self.earlier is None:
            self.decoding.record(call, self.stage, self.prompt.valid)
            return call
        call, held = self.earlier.together(given, call, self.stage)
        self.decoding.record(call, held, self.earlier.valid)
        return call

    def leave(self, states: Tensor) -> Tensor:
        """Restore the prompt's length: a dropped place gets the last kept token's state."""
        if self.stage is None or self.prompt is None:
            return states
        self._close_tap()
        if self.reference is not None:
            last = self.backbone.num_layers - 1
            self.reference.compare(last, states, self.stage, self.prompt)
        if not self.shortened:
            return states if self.logit_positions is None else states[:, self.logit_positions]
        present = self.stage.present
        order = torch.arange(1, present.shape[1] + 1, device=present.device) * present
        found = torch.zeros_like(self.prompt.valid, dtype=torch.long)
        last_kept = found.scatter(1, self.stage.slots, order).cummax(dim=1).values - 1
        last_kept = last_kept.maximum(present.long().argmax(dim=1, keepdim=True))
        if self.logit_positions is not None:
            last_kept = last_kept[:, self.logit_positions]
        return take(states, last_kept)

    def _shorten(self, call: LayerCall, outcomes: list[tuple[Group, Outcome]]) -> LayerCall:
        """Drop the tokens that do not stay; kept ones get their new states and weights."""
        assert self.prompt is not None
        assert self.stage is not None
        stage, stays = joined(self.stage, outcomes)
        states, where = call.states, None
        if not bool((stays & stage.present).all()):
            if self.prompt.ragged:
                index, filler = equalise_lengths(stays, self.prompt.valid.gather(1, stage.slots))
                stage = stage.kept(index).filled(filler)
            else:
                index = places_of(stays)
                stage = stage.kept(index)
            order = torch.arange(index.shape[1], device=index.device).expand_as(index)
            where = torch.zeros_like(self.stage.slots).scatter(1, index, order)
            states, self.shortened = take(states, index), True
            self._cuts.clear()
        self.stage = stage
        for group, outcome in outcomes:
            if outcome.anchors is not None:
                places, anchors = outcome.anchors
                places = places if where is None else group.of(where).gather(1, places)
                index = places[..., None].expand_as(anchors)
                new = group.of(states).scatter(1, index, anchors.to(states.dtype))
                states = group.put(states, new)
        return replace(call, states=states)

    def _open(self, call: LayerCall) -> None:
        """Classify the pass: a prompt to reduce, the continuation of one, or neither."""
        visual, cache = self.call.visual, call.cache
        past = 0 if cache is None else cache.get_seq_length()
        self.trace = self.decoding.trace_of(cache)
        if visual is None and not past:
            raise BackboneError(
                "expected input_ids: visual tokens are found by their ids; found inputs_embeds only"
            )
        if visual is None or not bool(visual.any()):
            return
        if past and self.weighted and torch.is_grad_enabled():
            raise BackboneError(
                "expected a pass without a cache where gradients are recorded; found one that "
                "already holds tokens. Pass the whole conversation with use_cache=False"
            )
        if cache is not None and cache.is_compileable:
            raise BackboneError(
                "expected a dynamic cache, whose layers may differ in length; found a static one. "
                "Leave cache_implementation unset"
            )
        length = self.decoding.prompt_length(self.call, call)
        self.prompt = read_prompt(self.call, self.plan, self.backbone, length=length)
        if past:
            assert cache is not None
            lengths = [cache.get_seq_length(i) for i in range(self.backbone.num_layers)]
            self.earlier = earlier_turns(
                self.backbone, self.call, prompt=self.prompt, trace=self.trace, lengths=lengths
            )
            self.trace = None
        everything = torch.arange(call.states.shape[1], device=call.states.device)
        self.stage = Stage(everything.expand(len(call.states), -1), self.prompt.visual)
        self.groups = group_samples(self.prompt.counts)
        scorers = [scorer for step in self.plan.steps for scorer in scorers_of(step.score)]
        if any(scorer.rows == "raters" for scorer in scorers):
            self.prompt = replace(
                self.prompt, raters=find_raters(call.states, self.prompt, self.groups)
            )

    def _between_layers(self, call: LayerCall, full: LayerCall) -> LayerCall:
        """Reduce, then compare with the full model; ``full`` are the inputs of the full prompt."""
        assert self.prompt is not None
        reference, before = self.reference, call.states
        if reference is not None and full.added is not None:
            reference.add(full.added)
        step = next((step for step in self.plan.steps if step.layer + 1 == call.index), None)
        if step is not None:
            call = self._reduce(call, step)
        self._close_tap()
        if reference is not None:
            assert self.stage is not None
            if self.shortened:
                reference.start(before)
            reference.compare(call.index - 1, call.states, self.stage, self.prompt)
            reference.advance(full)
        return call

    def _reduce(self, call: LayerCall, step: Step) -> LayerCall:
        """Execute one step, its count rescaled to the visual tokens of each sample."""
        assert self.prompt is not None
        assert self.stage is not None
        fraction, outcomes = step.keep / self.plan.visual_tokens, []
        context = StepContext(
            self.backbone, self.prompt, self.stage, self.previous, call, self.call.vision
        )
        for group in self.groups:
            stage = self.stage.of(group)
            places = places_of(stage.visual & stage.present)
            keep = group.keep(fraction, places.shape[1])
            outcome = self.reduce(GroupStep(step, context, group, stage, places, keep))
            outcomes += [] if outcome is None else [(group, outcome)]
        if not outcomes:
            return call
        call = self._shorten(call, outcomes)
        if step.positions == "reindex":
            valid = self.prompt.valid.gather(1, self.stage.slots) & self.stage.present
            positions = (valid.long().cumsum(dim=1) - 1).clamp_min(0)
            self.stage = replace(self.stage, positions=positions)
        return call

    def _cut(self, call: LayerCall) -> LayerCall:
        """Cut a layer's inputs to the stage; layers are given the same tensors, so do it once."""
        assert self.stage is not None
        if self.stage.positions is not None:
            return at_stage(self.backbone, call, self.stage)
        key = (id(call.mask), id(call.rotary[0]))
        if key not in self._cuts:
            self._cuts[key] = at_stage(self.backbone, call, self.stage)
        known = self._cuts[key]
        return replace(call, mask=known.mask, rotary=known.rotary, position_ids=known.position_ids)

    def _close_tap(self) -> None:
        """Release the keys recorded in the layer before."""
        if self.previous is not None and self.previous.tap is not None:
            self.previous.tap.close()
