"""Observing: what a step did, for pictures of it: which tokens stayed, and what they became."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from eos.engine.forward_pass import ForwardPass
from eos.engine.stages import places_of
from eos.engine.steps import execute
from eos.models.backbone import LayerCall
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


def observed(
    forward: ForwardPass, call: LayerCall, step: Step, keep: int, *, observer: Observer
) -> LayerCall:
    """Execute a step, and pass on what entered it and what is left."""
    tokens, states = _visual(forward, call)
    call = execute(forward, call, step, keep)
    observer(Observation(step, tokens, states, *_visual(forward, call)))
    return call


def _visual(forward: ForwardPass, call: LayerCall) -> tuple[Tensor, Tensor]:
    """Number the visual tokens that are left, ``[B, N]``, and take their states, ``[B, N, D]``."""
    assert forward.stage is not None
    assert forward.prompt is not None
    places = places_of(forward.stage.visual)
    numbers = forward.prompt.visual.long().cumsum(dim=1) - 1
    return numbers.gather(1, forward.stage.slots.gather(1, places)), take(call.states, places)
