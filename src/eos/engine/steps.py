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


def execute(forward: ForwardPass, call: LayerCall, step: Step, keep: int) -> LayerCall:
    """Reduce to ``keep`` visual tokens as a step says."""
    assert forward.stage is not None
    stage, operator, places = forward.stage, step.operator, places_of(forward.stage.visual)
    if keep == places.shape[1]:
        return call
    evidence, scores = scored(forward, call, step=step, places=places, keep=keep)
    if isinstance(operator, Operator):
        combined = unified(evidence, scores, keep=keep, omega=operator.omega, norm=operator.norm)
    else:
        own = OPERATORS[operator.kind]
        combined = own.combine(evidence, scores, keep=keep, sizes=forward.sizes)
    stays = (~stage.visual).scatter(1, places.gather(1, combined.places), True)
    call = forward.shorten(call, stage, stays=stays, anchors=combined.states)
    forward.sizes = combined.sizes
    if step.positions == "reindex":
        assert forward.prompt is not None
        valid = forward.prompt.valid.gather(1, forward.stage.slots).long()
        forward.stage = replace(forward.stage, positions=(valid.cumsum(dim=1) - 1).clamp_min(0))
    return call


def scored(
    forward: ForwardPass, call: LayerCall, *, step: Step, places: Tensor, keep: int
) -> tuple[Evidence, Tensor]:
    """Score the visual tokens at ``places`` ``[B, N]`` as a step says, ``[B, N]``.

    Each scorer of a mixture has its own evidence; the operator uses that of the first.
    """
    assert forward.prompt is not None
    assert forward.stage is not None
    weights, found = components(step.score), []
    for name in weights:
        layer = forward.previous
        if SCORERS[name].ahead:
            layer = replace(
                at_stage(forward.backbone, call, forward.stage), weights=forward.stage.weights
            )
        scene = Scene(
            forward.prompt, call.states, forward.stage.slots, places, layer, forward.call.vision
        )
        kind = step.operator.kind
        evidence = evidence_for(forward.backbone, scene, score=name, kind=kind, keep=keep)
        found.append((evidence, SCORERS[name].score(evidence)))
    if len(found) == 1:
        return found[0]
    return found[0][0], add_ranks([scores for _, scores in found], list(weights.values()))
