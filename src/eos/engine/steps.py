"""Steps: execute one step of a plan on a group of samples: score, select, combine."""

from dataclasses import dataclass

from torch import Tensor

from eos.engine.evidence import StepContext, evidence_of
from eos.engine.groups import Group, Outcome
from eos.engine.stages import Stage, add_weights
from eos.methods.registry import OPERATORS, SCORERS
from eos.operator.combine import unified
from eos.operator.scorers import Evidence
from eos.space.mixture import add_ranks, components
from eos.space.step import Operator, Step


@dataclass(frozen=True)
class GroupStep:
    """One step of one group, before it is executed.

    Attributes:
        step: as the plan says.
        context: of the whole batch.
        group: the samples.
        stage: their tokens.
        places: of the N visual ones among their T' tokens, ``[b, N]``.
        keep: how many to keep.
    """

    step: Step
    context: StepContext
    group: Group
    stage: Stage
    places: Tensor
    keep: int

    @property
    def states(self) -> Tensor:
        """States of the group's tokens, ``[b, T', D]``."""
        return self.group.of(self.context.ahead.states)

    @property
    def weights(self) -> Tensor | None:
        """Attention weights of the N visual tokens, ``[b, N]``; None if all are 1."""
        return None if self.stage.weights is None else self.stage.weights.gather(1, self.places)


def execute(here: GroupStep) -> Outcome | None:
    """Choose and combine as a step says; None if all tokens are kept."""
    operator, places, keep, group = here.step.operator, here.places, here.keep, here.group
    if keep == places.shape[1]:
        return None
    evidence, scores = scored(here, places)
    if isinstance(operator, Operator):
        combined = unified(
            evidence,
            scores,
            keep=keep,
            omega=operator.omega,
            norm=operator.norm,
            mass=operator.mass,
            weights=here.weights,
        )
    else:
        own = OPERATORS[operator.kind]
        combined = own.combine(evidence, scores, keep=keep, sizes=group.sizes)
    group.sizes = combined.sizes
    kept = places.gather(1, combined.places)
    stays = (~here.stage.visual).scatter(1, kept, True)
    added = combined.added
    weights = None if added is None else add_weights(here.stage, kept, added)
    return Outcome(stays, None if combined.states is None else (kept, combined.states), weights)


def scored(here: GroupStep, places: Tensor) -> tuple[Evidence, Tensor]:
    """Score the visual tokens at ``places`` ``[b, N]`` as a step says, ``[b, N]``.

    Each scorer of a mixture has its own evidence; the operator uses that of the first.
    """
    weights, found = components(here.step.score), []
    kind, keep = here.step.operator.kind, here.keep
    for name in weights:
        evidence = evidence_of(
            here.context, here.group, places=places, score=name, kind=kind, keep=keep
        )
        found.append((evidence, SCORERS[name].score(evidence)))
    if len(found) == 1:
        return found[0]
    return found[0][0], add_ranks([scores for _, scores in found], list(weights.values()))
