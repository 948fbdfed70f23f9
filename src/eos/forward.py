"""Forward: run a plan inside a backbone. The one place where reduction and models meet.

A plan's steps act at prefill, in the pre-hook of the layer after theirs: score with the layer's own
queries and keys, select, operate, gather. All later layers get masks, rotary embeddings and
positions of the tokens that are left, and cache only those; in decoding each layer's mask is cut to
what it holds. What leaves the decoder has the prompt's full length again, so that logits, labels
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
from eos.errors import BackboneError, PlanError, numbered
from eos.evidence import Prompt, Scene, evidence_for, find_raters, read_prompt
from eos.plan import Plan
from eos.reduce.combine import ORIGINALS, needs, unified
from eos.reduce.score import SCORERS
from eos.stages import Stage, Trace, at_stage, continued, places_of
from eos.step import Operator, Step
from eos.tokens import take


@contextmanager
def reduced(backbone: Backbone, plan: Plan) -> Iterator[PreTrainedModel]:
    """Run ``backbone`` under ``plan`` inside the block; there it is an ordinary model.

    >>> with eos.reduced(backbone, plan) as model:  # doctest: +SKIP
    ...     model.generate(**inputs)
    """
    _check(backbone, plan)
    with hooked(backbone, Reduction(backbone, plan), vision=asks_vision(plan)) as model:
        yield model


def asks_vision(plan: Plan) -> bool:
    """Whether a plan needs to know what the vision tower saw."""
    return any("vision" in needs(step.score, step.operator.kind) for step in plan.steps)


@dataclass
class Run:
    """One forward pass: what it started with, and where it is. Lives as long as the pass."""

    call: ModelCall
    prompt: Prompt | None = None  # of a pass that reduces
    stage: Stage | None = None
    trace: Trace | None = None  # of a pass that continues a reduced prompt
    previous: LayerCall | None = None
    sizes: Tensor | None = None  # how many tokens each visual one stands for, if anyone counts
    shortened: bool = False
    cuts: dict[tuple[int, int], LayerCall] = field(default_factory=dict)  # at this stage

    def cut(self, backbone: Backbone, call: LayerCall) -> LayerCall:
        """Cut a layer's inputs to the stage; layers are given the same tensors, so do it once."""
        assert self.stage is not None
        if self.stage.positions is not None:
            return at_stage(backbone, call, self.stage)
        key = (id(call.mask), id(call.rotary[0]))
        if key not in self.cuts:
            self.cuts[key] = at_stage(backbone, call, self.stage)
        known = self.cuts[key]
        return replace(call, mask=known.mask, rotary=known.rotary, position_ids=known.position_ids)


class Reduction:
    """The handler that executes a plan."""

    def __init__(self, backbone: Backbone, plan: Plan) -> None:
        self.backbone, self.plan = backbone, plan
        self.steps = {step.layer + 1: step for step in plan.steps}  # by the layer that follows
        self.traces: WeakKeyDictionary[Cache, Trace] = WeakKeyDictionary()
        self.last_uncached: tuple[Tensor, int] | None = None
        self.run = Run(ModelCall())

    def begin(self, call: ModelCall) -> None:
        """Start a forward pass."""
        self.run = Run(call)

    def enter(self, call: LayerCall) -> LayerCall:
        """Replace a layer's inputs by those of the tokens it should see."""
        run = self.run
        if call.index == 0:
            self._open(call)
        if run.trace is not None:
            return continued(self.backbone, call, run.trace)
        if run.prompt is None or run.stage is None:
            return call if call.added is None else replace(call, states=call.states + call.added)
        run.stage, run.prompt = run.stage.to(call.states), run.prompt.to(call.states)
        if call.added is not None:
            call = replace(call, states=call.states + take(call.added, run.stage.slots))
        if call.index in self.steps:
            call = self._reduce(call, self.steps[call.index], run.prompt, run.stage)
        if run.shortened:
            call = run.cut(self.backbone, call)
        run.previous = call
        if call.cache is not None:
            if call.index == 0:
                like = None if call.mask is None else call.mask[..., :1]
                self.traces[call.cache] = Trace(run.prompt.valid, like)
            self.traces[call.cache].stages[call.index] = run.stage
        return call

    def leave(self, states: Tensor) -> Tensor:
        """Give every place of the prompt a state again: that of the last token kept before it."""
        run = self.run
        if not run.shortened or run.stage is None or run.prompt is None:
            return states
        kept = torch.zeros_like(run.prompt.valid, dtype=torch.long).scatter_(1, run.stage.slots, 1)
        return take(states, (kept.cumsum(dim=1) - 1).clamp_min(0))

    def _open(self, call: LayerCall) -> None:
        """Decide what this pass is: a prompt to reduce, the continuation of one, or neither."""
        run, cache = self.run, call.cache
        past = 0 if cache is None else cache.get_seq_length()
        if cache is not None and past and cache in self.traces:
            run.trace = self.traces[cache]
        if run.call.visual is None and not past:
            raise BackboneError(
                "expected input_ids: visual tokens are found by their ids; found inputs_embeds only"
            )
        if run.call.visual is None or not bool(run.call.visual.any()):
            return
        if past:
            raise BackboneError(
                "expected images in the first prompt only; found new ones on a cache that already "
                "holds tokens. Start a new cache with the whole conversation"
            )
        if cache is not None and cache.is_compileable:
            raise BackboneError(
                "expected a dynamic cache, whose layers may differ in length; found a static one. "
                "Leave cache_implementation unset"
            )
        run.prompt = read_prompt(run.call, self.plan, self.backbone, asked=self._asked(call))
        everything = torch.arange(call.states.shape[1], device=call.states.device)
        run.stage = Stage(everything.expand(len(call.states), -1), run.prompt.visual)
        if any(SCORERS[step.score].rows == "raters" for step in self.plan.steps):
            run.prompt = replace(run.prompt, raters=find_raters(call.states, run.prompt))

    def _asked(self, call: LayerCall) -> int:
        """Say how long the prompt is: all of the text, unless it is being continued uncached.

        Decoding without a cache passes the whole text again, one token longer each time. The
        prompt must be scored as it was the first time, or tokens would come and go.
        """
        ids, asked = self.run.call.ids, call.states.shape[1]
        assert ids is not None
        if call.cache is not None or self.run.call.answer is not None:
            return asked
        if self.last_uncached is not None:
            last, first = self.last_uncached
            longer = ids.shape == (len(last), last.shape[1] + 1)
            if longer and torch.equal(ids[:, :first], last[:, :first]):  # beams may change places
                asked = first
        self.last_uncached = ids, asked
        return asked

    def _reduce(self, call: LayerCall, step: Step, prompt: Prompt, stage: Stage) -> LayerCall:
        """Execute one step on what enters a layer."""
        run, scorer, places = self.run, SCORERS[step.score], places_of(stage.visual)
        fraction = step.keep / self.plan.visual_tokens
        keep = min(places.shape[1], max(1, round(fraction * int(prompt.visual[0].sum()))))
        if keep == places.shape[1]:
            return call
        layer = at_stage(self.backbone, call, stage) if scorer.ahead else run.previous
        scene = Scene(prompt, call.states, stage.slots, places, layer, run.call.vision)
        operator = step.operator
        evidence = evidence_for(
            self.backbone, scene, score=step.score, kind=operator.kind, keep=keep
        )
        scores = scorer.score(evidence)
        if isinstance(operator, Operator):
            combined = unified(
                evidence, scores, keep=keep, omega=operator.omega, norm=operator.norm
            )
        else:
            combined = ORIGINALS[operator.kind](evidence, scores, keep=keep, sizes=run.sizes)
        stays = ~stage.visual
        index = places_of(stays.scatter(1, places.gather(1, combined.places), True))
        stage, states = stage.kept(index), take(call.states, index)
        if combined.states is not None:
            states = states.masked_scatter(
                stage.visual[..., None], combined.states.to(states.dtype)
            )
        if step.positions == "reindex":
            valid = prompt.valid.gather(1, stage.slots).long()
            stage = replace(stage, positions=(valid.cumsum(dim=1) - 1).clamp_min(0))
        run.stage, run.sizes, run.shortened = stage, combined.sizes, True
        run.cuts.clear()
        return replace(call, states=states)


def _check(backbone: Backbone, plan: Plan) -> None:
    problems = []
    if plan.num_layers != backbone.num_layers:
        problems.append(
            f"expected a plan for {backbone.num_layers} decoder layers, which this model has; "
            f"found one for {plan.num_layers}"
        )
    for step in plan.steps:
        scorer = SCORERS[step.score]
        if step.layer == -1 and scorer.rows != "none" and not scorer.ahead:
            problems.append(
                f"expected a scorer without text before the decoder; found {step.score!r} at "
                "layer -1"
            )
        if step.positions == "reindex" and backbone.spatial_positions:
            problems.append(
                f"expected positions 'keep' in a model with spatial positions; found 'reindex' at "
                f"layer {step.layer}"
            )
    if problems:
        raise PlanError(numbered(problems))
