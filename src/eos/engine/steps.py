"""Steps: execute one step of a plan on what enters a layer: score, select, combine, drop."""

from dataclasses import replace

from torch import Tensor

from eos.engine.evidence import Scene, evidence_for
from eos.engine.forward_pass import ForwardPass
from eos.engine.stages import at_stage, places_of
from eos.methods.registry import OPERATORS, SCORERS
from eos.models.backbone import LayerCall
from eos.operator.combine import unified
from eos.operator.scorers import Evidence
from eos.space.mixture import add_ranks, components
from eos.space.step import Operator, Step


def execute(run: ForwardPass, call: LayerCall, step: Step, keep: int) -> LayerCall:
    """Reduce to ``keep`` visual tokens as a step says."""
    assert run.stage is not None
    stage, operator, places = run.stage, step.operator, places_of(run.stage.visual)
    if keep == places.shape[1]:
        return call
    evidence, scores = scored(run, call, step=step, places=places, keep=keep)
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


def scored(
    run: ForwardPass, call: LayerCall, *, step: Step, places: Tensor, keep: int
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
            layer = replace(at_stage(run.backbone, call, run.stage), weights=run.stage.weights)
        scene = Scene(run.prompt, call.states, run.stage.slots, places, layer, run.call.vision)
        kind = step.operator.kind
        evidence = evidence_for(run.backbone, scene, score=name, kind=kind, keep=keep)
        found.append((evidence, SCORERS[name].score(evidence)))
    if len(found) == 1:
        return found[0]
    return found[0][0], add_ranks([scores for _, scores in found], list(weights.values()))
