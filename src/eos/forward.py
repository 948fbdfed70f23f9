"""Forward: run a plan inside a backbone. The one place where reduction and models meet.

A plan's steps act at prefill, in the pre-hook of the layer after theirs: score with the layer's own
queries and keys, select, operate, gather. All later layers get masks, rotary embeddings and
positions of the tokens that are left, and cache only those; in decoding each layer's mask is cut to
what it cached. What leaves the decoder has the prompt's full length again, so that logits, labels
and losses stay where they were.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from eos.backbones.backbone import Backbone, LayerCall
from eos.backbones.hooks import ModelCall, hooked
from eos.errors import BackboneError, PlanError
from eos.evidence import Prompt, evidence_for, find_raters
from eos.plan import Plan, Step
from eos.reduce.reducer import reduce_tokens
from eos.reduce.score import SCORERS
from eos.tokens import Tokens, take


@contextmanager
def reduced(backbone: Backbone, plan: Plan) -> Iterator[PreTrainedModel]:
    """Run ``backbone`` under ``plan`` inside the block; it is an ordinary model there.

    >>> with eos.reduced(backbone, plan) as model:  # doctest: +SKIP
    ...     model.generate(**inputs)
    """
    _check(backbone, plan)
    with hooked(backbone, Reduction(backbone, plan)) as model:
        yield model


@dataclass(frozen=True)
class Stage:
    """Which tokens of the prompt a layer works on.

    Attributes:
        slots: their places in the full prompt, ``[B, T']``, ascending.
        visual: which of them are visual, ``[B, T']``.
        positions: new position ids ``[B, T']`` if a step re-indexed them, else None.
    """

    slots: Tensor
    visual: Tensor
    positions: Tensor | None = None


@dataclass
class Pass:
    """One forward pass: what it started with, and where it is."""

    call: ModelCall
    prompt: Prompt | None = None
    stage: Stage | None = None
    previous: LayerCall | None = None
    trace: "Trace | None" = None
    reduced: bool = False


@dataclass
class Trace:
    """What each layer's cache holds of a reduced prompt, for the decoding that follows."""

    tokens: int
    valid: Tensor
    stages: dict[int, Stage] = field(default_factory=dict)


class Reduction:
    """The handler that executes a plan."""

    def __init__(self, backbone: Backbone, plan: Plan) -> None:
        self.backbone, self.plan = backbone, plan
        self.steps = {step.layer + 1: step for step in plan.steps}  # by the layer that follows
        self.traces: WeakKeyDictionary[Cache, Trace] = WeakKeyDictionary()
        self.run = Pass(ModelCall(None, None))

    def begin(self, call: ModelCall) -> None:
        """Start a forward pass."""
        self.run = Pass(call)

    def enter(self, call: LayerCall) -> LayerCall:
        """Replace a layer's inputs by those of the tokens it should see."""
        run = self.run
        if call.index == 0:
            self._open(call)
        if run.trace is not None:
            return _continued(self.backbone, call, run.trace)
        if run.prompt is None or run.stage is None:
            return call if call.added is None else replace(call, states=call.states + call.added)
        if call.added is not None:
            call = replace(call, states=call.states + take(call.added, run.stage.slots))
        step = self.steps.get(call.index)
        if step is not None:
            call = self._reduce(call, step)
        if run.reduced:
            call = _at_stage(self.backbone, call, run.stage)
        run.previous = call
        if call.cache is not None:
            self._remember(call)
        return call

    def leave(self, states: Tensor) -> Tensor:
        """Give every place of the prompt a state again: that of the last token kept before it."""
        run = self.run
        if not run.reduced or run.stage is None or run.prompt is None:
            return states
        kept = torch.zeros_like(run.prompt.valid, dtype=torch.long).scatter_(1, run.stage.slots, 1)
        return take(states, (kept.cumsum(dim=1) - 1).clamp_min(0))

    def _open(self, call: LayerCall) -> None:
        """Decide what this pass is: a prompt to reduce, the continuation of one, or neither."""
        run = self.run
        past = 0 if call.cache is None else call.cache.get_seq_length()
        if past and call.cache in self.traces:
            run.trace = self.traces[call.cache]
        if run.call.visual is None:
            if past:
                return
            raise BackboneError(
                "expected input_ids: visual tokens are found by their ids; found inputs_embeds only"
            )
        if not bool(run.call.visual.any()):
            return
        if past:
            raise BackboneError(
                "expected images in the first prompt only; found new ones on a cache that already "
                "holds tokens. Start a new cache with the whole conversation"
            )
        run.prompt = _prompt(run.call, self.plan, self.backbone)
        everything = torch.arange(call.states.shape[1], device=call.states.device)
        slots = everything.expand(call.states.shape[0], -1)
        run.stage = Stage(slots, run.prompt.visual)
        if any(SCORERS[step.score].rows == "raters" for step in self.plan.steps):
            run.prompt = replace(run.prompt, raters=find_raters(call.states, run.prompt))

    def _reduce(self, call: LayerCall, step: Step) -> LayerCall:
        """Execute one step on what enters a layer."""
        run = self.run
        assert run.prompt is not None
        assert run.stage is not None
        place = _places(run.stage.visual)
        full = int(run.prompt.visual[0].sum())
        keep = min(place.shape[1], max(1, round(step.keep * full / self.plan.visual_tokens)))
        if keep == place.shape[1]:
            return call
        ahead = SCORERS[step.score].ahead
        evidence = evidence_for(
            self.backbone,
            step.score,
            states=call.states,
            layer=_at_stage(self.backbone, call, run.stage) if ahead else run.previous,
            prompt=run.prompt,
            slots=run.stage.slots,
            places=place,
        )
        scores = SCORERS[step.score].score(evidence)
        tokens, selected = reduce_tokens(
            Tokens(evidence.states, place), scores, keep=keep, omega=step.operator.omega, norm=step.operator.norm
        )
        dropped = torch.zeros_like(run.stage.visual).scatter_(1, place.gather(1, selected.dropped), True)
        index = _places(~dropped)
        states = take(call.states, index)
        visual = run.stage.visual.gather(1, index)
        if not step.operator.omega.prunes:
            states = states.masked_scatter(visual[..., None], tokens.states.to(states.dtype))
        run.stage = Stage(run.stage.slots.gather(1, index), visual, self._positions(step, run, index))
        run.reduced = True
        return replace(call, states=states)

    def _positions(self, step: Step, run: Pass, index: Tensor) -> Tensor | None:
        assert run.prompt is not None
        assert run.stage is not None
        if step.positions == "reindex":
            valid = run.prompt.valid.gather(1, run.stage.slots.gather(1, index))
            return (valid.long().cumsum(dim=1) - 1).clamp_min(0)
        return None if run.stage.positions is None else run.stage.positions.gather(1, index)

    def _remember(self, call: LayerCall) -> None:
        assert self.run.prompt is not None
        assert self.run.stage is not None
        if call.index == 0:
            if call.cache.is_compileable:
                raise BackboneError("expected a dynamic cache, whose layers may differ in length; found a static one")
            self.traces[call.cache] = Trace(self.run.prompt.visual.shape[1], self.run.prompt.valid)
        self.traces[call.cache].stages[call.index] = self.run.stage


def _at_stage(backbone: Backbone, call: LayerCall, stage: Stage) -> LayerCall:
    """Cut mask, rotary embedding and positions, which the model made for the full prompt."""
    if stage.positions is None:
        rotary = tuple(take(x.expand(len(stage.slots), -1, -1), stage.slots) for x in call.rotary)
        ids = call.position_ids
        ids = None if ids is None else ids.expand(len(stage.slots), -1).gather(1, stage.slots)
    else:
        rotary, ids = backbone.rotary(call.states, stage.positions, call.index), stage.positions
    mask = _cut_columns(_cut_rows(call.mask, stage.slots), stage.slots)
    return replace(call, mask=mask, rotary=rotary, position_ids=ids)


def _continued(backbone: Backbone, call: LayerCall, trace: Trace) -> LayerCall:
    """Fit a layer's mask and positions to what its cache holds."""
    stage, new = trace.stages[call.index], call.states.shape[1]
    kept = stage.slots.shape[1]
    past = call.cache.layers[call.index].get_seq_length() - kept
    later = torch.arange(trace.tokens, trace.tokens + past + new, device=stage.slots.device)
    columns = torch.cat([stage.slots, later.expand(len(stage.slots), -1)], dim=1)
    if call.mask is not None:
        call = replace(call, mask=_cut_columns(_widened(call.mask, trace, past + new), columns))
    if stage.positions is not None:
        start = stage.positions[:, -1:] + 1 + past
        ids = start + torch.arange(new, device=start.device)
        call = replace(call, rotary=backbone.rotary(call.states, ids, call.index), position_ids=ids)
    return call


def _widened(mask: Tensor, trace: Trace, later: int) -> Tensor:
    """Rebuild the columns of a mask that the model made for a shorter first layer."""
    if mask.shape[-1] == trace.tokens + later or mask.ndim == 2:
        return mask
    allowed = torch.cat([trace.valid, trace.valid.new_ones(len(trace.valid), later)], dim=1)
    allowed = allowed[:, None, None].expand(-1, -1, mask.shape[2], -1).clone()
    new = mask.shape[2]
    allowed[..., -new:] &= torch.ones(new, new, dtype=torch.bool, device=mask.device).tril()
    if mask.dtype == torch.bool:
        return allowed
    return torch.zeros_like(allowed, dtype=mask.dtype).masked_fill(~allowed, torch.finfo(mask.dtype).min)


def _cut_rows(mask: Tensor | None, rows: Tensor) -> Tensor | None:
    if mask is None or mask.ndim == 2:
        return mask
    mask = mask.expand(len(rows), -1, -1, -1)
    return mask.gather(2, rows[:, None, :, None].expand(-1, mask.shape[1], -1, mask.shape[3]))


def _cut_columns(mask: Tensor | None, columns: Tensor) -> Tensor | None:
    if mask is None:
        return None
    if mask.ndim == 2:
        return mask.expand(len(columns), -1).gather(1, columns)
    mask = mask.expand(len(columns), -1, -1, -1)
    return mask.gather(3, columns[:, None, None].expand(-1, mask.shape[1], mask.shape[2], -1))


def _places(mask: Tensor) -> Tensor:
    """Where a mask is true, the same number of times in each row: ``[B, n]``, ascending."""
    return mask.nonzero()[:, 1].view(mask.shape[0], -1)


def _prompt(model_call: ModelCall, plan: Plan, backbone: Backbone) -> Prompt:
    """Check that a prompt can be reduced as a batch, by this plan."""
    visual = model_call.visual
    assert visual is not None
    counts = visual.sum(dim=1)
    if bool((counts != counts[0]).any()):
        raise BackboneError(
            f"expected the same number of visual tokens in every sample of a batch; found "
            f"{counts.tolist()}. Run samples of different numbers in separate batches"
        )
    if int(counts[0]) % plan.visual_tokens and not backbone.family.any_count:
        raise PlanError(
            f"expected a plan for {int(counts[0])} visual tokens, which this prompt has; found one for "
            f"{plan.visual_tokens} an image"
        )
    padding = model_call.padding
    if padding is None:
        return Prompt(visual, torch.ones_like(visual))
    valid = padding[:, -visual.shape[1] :].bool()
    if not bool(valid[:, -1].all()):
        raise BackboneError(
            "expected a left-padded batch; found padding on the right. Set padding_side='left' on "
            "the tokenizer"
        )
    return Prompt(visual, valid)


def _check(backbone: Backbone, plan: Plan) -> None:
    if plan.num_layers != backbone.num_layers:
        raise PlanError(
            f"expected a plan for {backbone.num_layers} decoder layers, which this model has; found "
            f"one for {plan.num_layers}"
        )
    for step in plan.steps:
        scorer = SCORERS[step.score]
        if step.layer == -1 and scorer.rows != "none" and not scorer.ahead:
            raise PlanError(
                f"expected a scorer without text before the decoder (layer -1); found {step.score!r}"
            )
