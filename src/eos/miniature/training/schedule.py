"""Schedule: the phases of training the miniature, and the learning rate at every step."""

from collections.abc import Sequence
from dataclasses import dataclass

from eos.miniature.scenes import OBJECT_SHARES

WARMUP = 40  # steps over which the rate rises at the start of a phase
DECAY = 0.15  # the last share of all steps with answers, in which the rate falls to nothing
OTHER_KINDS = ("digits", "strings", "chart", "diagram", "strings", "diagram")  # the last are hard
HARD_KINDS = ("diagram", "strings", "diagram", "strings", "diagram", "digits", "chart", "diagram")
EVEN_KINDS = ("digits", "strings", "chart", "diagram")
MOSTLY_FULL = (0.4, 1.0, 1.0, 1.0)
MIXED_SHARES = (0.2, 0.4, 0.67, 1.0, 1.0)  # 3, 6, 10 or 15 objects in a picture of 96 pixels


@dataclass(frozen=True)
class Phase:
    """Consecutive steps with the same settings.

    Attributes:
        objective: "tower" trains the vision tower on labels of patches, "answers" the whole model.
        size: of the images, in pixels.
        steps: how many updates.
        images: in each step; half of them show objects, half the other kinds of scenes.
        rate: factor of the learning rates.
        shares: possible densities of objects in question scenes; one is drawn for each scene.
        other_kinds: the other kinds of scenes, as often as they are named.
    """

    objective: str
    size: int
    steps: int
    images: int
    rate: float = 1.0
    shares: tuple[float, ...] = (1.0,)
    other_kinds: tuple[str, ...] = OTHER_KINDS


SCHEDULE = (
    Phase("tower", 48, 1100, 48, rate=2.0),
    Phase("tower", 64, 700, 32, rate=2.0),
    Phase("answers", 48, 1100, 16, rate=0.5),
    Phase("answers", 64, 150, 16, rate=0.5),
    Phase("tower", 96, 150, 16, rate=1.0),
    Phase("answers", 96, 700, 8, rate=0.5),
    Phase("answers", 96, 150, 8, rate=0.5, shares=MIXED_SHARES),
    Phase("answers", 96, 700, 8, rate=0.2, shares=MIXED_SHARES),
    Phase("tower", 96, 450, 16, rate=0.35, other_kinds=HARD_KINDS),
    Phase("answers", 96, 200, 8, rate=0.2, shares=MOSTLY_FULL, other_kinds=HARD_KINDS),
    Phase("answers", 96, 400, 8, rate=0.15, shares=MOSTLY_FULL, other_kinds=HARD_KINDS),
    Phase("answers", 96, 100, 8, rate=0.15, shares=MOSTLY_FULL, other_kinds=EVEN_KINDS),
    Phase("answers", 96, 480, 8, rate=0.15, shares=OBJECT_SHARES, other_kinds=EVEN_KINDS),
    Phase("answers", 96, 250, 8, rate=0.2, shares=OBJECT_SHARES, other_kinds=HARD_KINDS),
)


def total_steps(schedule: Sequence[Phase]) -> int:
    """Count the steps of all phases."""
    return sum(phase.steps for phase in schedule)


def phase_at(schedule: Sequence[Phase], step: int) -> tuple[Phase, int]:
    """Find the phase of a step, and how many of its steps came before."""
    for phase in schedule:
        if step < phase.steps:
            return phase, step
        step -= phase.steps
    raise IndexError(step)


def rate_at(schedule: Sequence[Phase], step: int) -> float:
    """Learning-rate factor: a linear warmup in each phase, a linear decay at the very end."""
    with_answers = sum(phase.steps for phase in schedule if phase.objective == "answers")
    phase, before = phase_at(schedule, step)
    warmup = min(1.0, (before + 1) / WARMUP)
    left = total_steps(schedule) - step
    return warmup * phase.rate * min(1.0, left / max(1.0, DECAY * with_answers))
