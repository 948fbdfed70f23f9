"""Observing: what a step did, for pictures of it: which tokens stayed, and what they became."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from eos.engine.groups import Outcome
from eos.engine.stages import places_of
from eos.engine.steps import GroupStep, execute
from eos.space.step import Step
from eos.tokens import take


@dataclass(frozen=True)
class Observation:
    """One step on one batch; visual tokens are numbered as they stand in the prompt.

    Attributes:
        step: of the plan.
        tokens: that entered the step, ``[B, N]``, and
        states: their states, ``[B, N, D]``.
        kept: that are left, ``[B, K]``, and
        after: their states, ``[B, K, D]``.
    """

    step: Step
    tokens: Tensor
    states: Tensor
    kept: Tensor
    after: Tensor


Observer: TypeAlias = Callable[[Observation], None]


def observed(here: GroupStep, *, observer: Observer) -> Outcome | None:
    """Execute a step, and pass on what entered it and what is left."""
    outcome = execute(here)
    places, states = here.places, take(here.states, here.places)
    kept, after = places, states
    if outcome is not None:
        kept = places_of(outcome.stays & here.stage.visual)
        after = take(here.states, kept)
        if outcome.anchors is not None:
            kept, after = outcome.anchors
    numbers = here.group.of(here.context.prompt.visual).long().cumsum(dim=1) - 1

    def tokens(at: Tensor) -> Tensor:
        return numbers.gather(1, here.stage.slots.gather(1, at))

    observer(Observation(here.step, tokens(places), states, tokens(kept), after))
    return outcome
