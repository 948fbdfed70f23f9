"""Forward pass: one pass through a backbone, its current stage, and a plan's steps upon it."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from eos.engine.evidence import Prompt, Scene, evidence_for
from eos.engine.stages import Stage, Trace, at_stage, places_of
from eos.methods.registry import OPERATORS, SCORERS
from eos.models.backbone import Backbone, LayerCall
from eos.models.hooks import ModelCall
from eos.operator.combine import unified
from eos.operator.scorers import Evidence
from eos.space.mixture import add_ranks, components
from eos.space.step import Operator, Step
from eos.tokens import take


@dataclass
class Run:
    """State of one forward pass: its inputs and the tokens that are left. One object a pass."""

    call: ModelCall
    prompt: Prompt | None = None  # of a pass that reduces
    stage: Stage | None = None
    trace: Trace | None = None  # of a pass that continues a reduced prompt
    previous: LayerCall | None = None
    sizes: Tensor | None = None  # tokens merged into each visual one, if the operator tracks it
    counted: int | None = None  # visual tokens under a hard boundary, if it is soft
    shortened: bool = False
    cuts: dict[tuple[int, int], LayerCall] = field(default_factory=dict)  # at this stage

    @property
    def visual_tokens(self) -> int:
        """Count the visual tokens of the full prompt."""
        assert self.prompt is not None
        return int(self.prompt.visual[0].sum())

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

    def shorten(
        self, call: LayerCall, stage: Stage, *, stays: Tensor, anchors: Tensor | None
    ) -> LayerCall:
        """Keep the tokens that ``stays`` ``[B, T']`` marks; visual states become ``anchors``."""
        if bool((stays & stage.counts).all()):
            self.stage, states = stage, call.states
        else:
            index = places_of(stays)
            self.stage, self.shortened, states = stage.kept(index), True, take(call.states, index)
            self.cuts.clear()
        if anchors is not None:
            where = (self.stage.visual & self.stage.counts)[..., None]
            states = states.masked_scatter(where, anchors.to(states.dtype))
        return replace(call, states=states)


def scored(
    backbone: Backbone, run: Run, call: LayerCall, *, step: Step, places: Tensor, keep: int
) -> tuple[Evidence, Tensor]:
    """Score the visual tokens at ``places`` ``[B, N]`` as a step says, ``[B, N]``.

    Each scorer of a mixture has its own evidence; the operator uses that of the first.
    """
    assert run.prompt is not None
    assert run.stage is not None
    weights, found = components(step.score), []
    for name in weights:
        layer = run.previous
        if SCORERS[name].ahead:
            layer = replace(at_stage(backbone, call, run.stage), weights=run.stage.weights)
        scene = Scene(run.prompt, call.states, run.stage.slots, places, layer, run.call.vision)
        kind = step.operator.kind
        evidence = evidence_for(backbone, scene, score=name, kind=kind, keep=keep)
        found.append((evidence, SCORERS[name].score(evidence)))
    if len(found) == 1:
        return found[0]
    return found[0][0], add_ranks([scores for _, scores in found], list(weights.values()))


def execute(backbone: Backbone, run: Run, call: LayerCall, *, step: Step, keep: int) -> LayerCall:
    """Execute one step of a plan on what enters a layer."""
    assert run.stage is not None
    stage, operator, places = run.stage, step.operator, places_of(run.stage.visual)
    if keep == places.shape[1]:
        return call
    evidence, scores = scored(backbone, run, call, step=step, places=places, keep=keep)
    if isinstance(operator, Operator):
        combined = unified(evidence, scores, keep=keep, omega=operator.omega, norm=operator.norm)
    else:
        own = OPERATORS[operator.kind]
        combined = own.combine(evidence, scores, keep=keep, sizes=run.sizes)
    stays = (~stage.visual).scatter(1, places.gather(1, combined.places), True)
    call = run.shorten(call, stage, stays=stays, anchors=combined.states)
    run.sizes = combined.sizes
    if step.positions == "reindex":
        assert run.prompt is not None
        valid = run.prompt.valid.gather(1, run.stage.slots).long()
        run.stage = replace(run.stage, positions=(valid.cumsum(dim=1) - 1).clamp_min(0))
    return call
