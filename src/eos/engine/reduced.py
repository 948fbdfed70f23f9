"""Reduced: run a plan or Θ inside a backbone. The one place where reduction and models meet.

A plan's steps act at prefill, in the pre-hook of the layer after theirs: score with the layer's own
queries and keys, select, operate, gather. All later layers get masks, rotary embeddings and
positions of the tokens that are left, and cache only those; in decoding each layer's mask is cut to
what it holds. What leaves the decoder has the prompt's full length again, so that logits, labels
and losses stay where they were. Θ runs as the plan of its own counts, and with gradients its
choices are weighed as in `eos.engine.relaxation`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from eos.engine.evidence import Prompt, find_raters, read_prompt
from eos.engine.forward_pass import Run, execute
from eos.engine.reference import Reference
from eos.engine.relaxation import Relaxation, Search, Site, relax
from eos.engine.stages import Stage, Trace, continued, places_of
from eos.errors import BackboneError, PlanError, numbered
from eos.models.backbone import Backbone, KeyTap, LayerCall
from eos.models.hooks import ModelCall, hooked
from eos.space.mixture import scorers_of
from eos.space.plan import Plan
from eos.space.step import DEFAULT_SCORER, INPUT_SCORER, Step, needs
from eos.space.theta import Theta
from eos.tokens import take


@contextmanager
def reduced(
    backbone: Backbone,
    reduction: Plan | Theta,
    *,
    relaxation: Relaxation | None = None,
    score: str = DEFAULT_SCORER,
    input_score: str = INPUT_SCORER,
    checkpoint: bool = False,
) -> Iterator[PreTrainedModel]:
    """Run ``backbone`` under a plan or Θ inside the block; there it is an ordinary model.

    >>> with eos.reduced(backbone, plan) as model:  # doctest: +SKIP
    ...     model.generate(**inputs)
    >>> with eos.reduced(backbone, theta) as model:  # doctest: +SKIP
    ...     model(**inputs, labels=labels).loss.backward()  # reaches every group of Θ

    Args:
        backbone: the frozen model.
        reduction: a plan; or Θ, which runs as the plan of its present counts (Eq. 11).
        relaxation: how gradients reach Θ's counts; the rest is differentiable as it is.
        score: the scorer of Θ's sites in the decoder, and
        input_score: of its site before the decoder.
        checkpoint: recompute decoder layers in the backward pass instead of keeping activations.
    """
    if isinstance(reduction, Plan):
        handler = Reduction(backbone, reduction)
    else:
        search = Search(reduction, relaxation or Relaxation(), score, input_score)
        handler = Reduction(backbone, search.plan(search.sites()), search=search)
    with attached(backbone, handler, checkpoint=checkpoint) as model:
        yield model


@contextmanager
def attached(
    backbone: Backbone, handler: "Reduction", *, checkpoint: bool = False
) -> Iterator[PreTrainedModel]:
    """Hook ``handler`` into ``backbone`` inside the block."""
    _check(backbone, handler.plan)
    settings = {"weighted": handler.search is not None, "checkpoint": checkpoint}
    with hooked(backbone, handler, vision=asks_vision(handler.plan), **settings) as model:
        yield model


def asks_vision(plan: Plan) -> bool:
    """Whether a plan's scorers or operators need evidence of the vision tower."""
    return any("vision" in needs(step.score, step.operator.kind) for step in plan.steps)


class Reduction:
    """Callbacks that execute a plan, or Θ as the plan of its counts at each pass.

    Attributes:
        reference: the full model run beside the reduced one for alignment, or None.
        answer: mask of answer tokens, ``[B, T]``, where the model gets no labels.
        wanted: positions ``[P]`` whose final states (and so logits) are needed; None for all.
    """

    def __init__(self, backbone: Backbone, plan: Plan, *, search: Search | None = None) -> None:
        self.backbone, self.search = backbone, search
        self._adopt(plan, {})
        self.reference: Reference | None = None
        self.answer: Tensor | None = None
        self.wanted: Tensor | None = None
        self.traces: WeakKeyDictionary[Cache, Trace] = WeakKeyDictionary()
        self.last_uncached: tuple[Tensor, int] | None = None
        self.run = Run(ModelCall())

    def begin(self, call: ModelCall) -> None:
        """Start a forward pass."""
        self.run = Run(call if self.answer is None else replace(call, answer=self.answer))

    def _adopt(self, plan: Plan, sites: dict[int, Site]) -> None:
        self.plan, self.sites = plan, sites
        self.steps = {step.layer + 1: step for step in plan.steps}  # by the layer that follows

    def enter(self, call: LayerCall) -> LayerCall:
        """Replace a layer's inputs by those of the tokens that are left."""
        run = self.run
        if call.index == 0:
            self._open(call)
        if run.trace is not None:
            return continued(self.backbone, call, run.trace)
        if run.prompt is None or run.stage is None:
            return call if call.added is None else replace(call, states=call.states + call.added)
        run.stage, run.prompt = run.stage.to(call.states), run.prompt.to(call.states)
        full = call
        if call.added is not None:
            call = replace(call, states=call.states + take(call.added, run.stage.slots))
        call = self._step(call, full, run.prompt, run.stage)
        if run.shortened:
            call = run.cut(self.backbone, call)
        if self.search is not None and torch.is_grad_enabled():
            # nothing is decoded from a pass with gradients, and a cache would hold on to it
            call = replace(call, weights=run.stage.weights, tap=KeyTap(), cache=None)
        run.previous = call
        if call.cache is not None:
            if call.index == 0:
                like = None if call.mask is None else call.mask[..., :1]
                self.traces[call.cache] = Trace(run.prompt.valid, like)
            self.traces[call.cache].stages[call.index] = run.stage
        return call

    def leave(self, states: Tensor) -> Tensor:
        """Restore the prompt's length: a dropped place gets the last kept token's state."""
        run = self.run
        if run.stage is None or run.prompt is None:
            return states
        if run.previous is not None and run.previous.tap is not None:
            run.previous.tap.close()
        if self.reference is not None:
            self.reference.compare(self.backbone.num_layers - 1, states, run.stage, run.prompt)
        if not run.shortened:
            return states if self.wanted is None else states[:, self.wanted]
        present = places_of(run.stage.counts)
        slots = run.stage.slots.gather(1, present)
        kept = torch.zeros_like(run.prompt.valid, dtype=torch.long).scatter_(1, slots, 1)
        last = (kept.cumsum(dim=1) - 1).clamp_min(0)
        if self.wanted is not None:
            last = last[:, self.wanted]
        return take(states, present.gather(1, last))

    def _open(self, call: LayerCall) -> None:
        """Classify the pass: a prompt to reduce, the continuation of one, or neither."""
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
        if self.search is not None:  # Θ moves between passes
            sites = self.search.sites()
            self._adopt(self.search.plan(sites), sites)
        run.prompt = read_prompt(run.call, self.plan, self.backbone, asked=self._asked(call))
        everything = torch.arange(call.states.shape[1], device=call.states.device)
        run.stage = Stage(everything.expand(len(call.states), -1), run.prompt.visual)
        scorers = [scorer for step in self.plan.steps for scorer in scorers_of(step.score)]
        if any(scorer.rows == "raters" for scorer in scorers):
            run.prompt = replace(run.prompt, raters=find_raters(call.states, run.prompt))

    def _asked(self, call: LayerCall) -> int:
        """Count the prompt's tokens: the whole text, unless it is decoded without a cache.

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

    def _step(self, call: LayerCall, full: LayerCall, prompt: Prompt, stage: Stage) -> LayerCall:
        """Reduce and compare between two layers; ``full`` are the inputs of the full prompt."""
        run, reference, before = self.run, self.reference, call.states
        if reference is not None and full.added is not None:
            reference.add(full.added)
        if call.index in self.steps:
            call = self._reduce(call, self.steps[call.index], prompt, stage)
        if run.previous is not None and run.previous.tap is not None:
            run.previous.tap.close()
        if reference is not None:
            assert run.stage is not None
            if run.shortened:
                reference.start(before)
            reference.compare(call.index - 1, call.states, run.stage, prompt)
            reference.advance(full)
        return call

    def _reduce(self, call: LayerCall, step: Step, prompt: Prompt, stage: Stage) -> LayerCall:
        """Execute one step on what enters a layer."""
        fraction = step.keep / self.plan.visual_tokens
        wanted = max(1, round(fraction * int(prompt.visual[0].sum())))
        keep = min(int((stage.visual & stage.counts)[0].sum()), wanted)
        if self.search is None:
            return execute(self.backbone, self.run, call, step=step, keep=keep)
        return relax(
            self.backbone,
            self.run,
            call,
            step=step,
            site=self.sites[step.layer],
            relaxation=self.search.relaxation,
            keep=keep,
        )


def _check(backbone: Backbone, plan: Plan) -> None:
    problems = []
    if plan.num_layers != backbone.num_layers:
        problems.append(
            f"expected a plan for {backbone.num_layers} decoder layers, which this model has; "
            f"found one for {plan.num_layers}"
        )
    for step in plan.steps:
        early = any(x.rows != "none" and not x.ahead for x in scorers_of(step.score))
        if step.layer == -1 and early:
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
