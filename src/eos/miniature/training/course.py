"""Course: in which order the miniature learns, and how fast."""

from collections.abc import Sequence
from dataclasses import dataclass

from eos.miniature.scenes import OBJECT_SHARES

RISE = 40  # steps over which the rate rises at the start of a phase
DECAY = 0.15  # the last share of all steps with answers, in which the rate falls to nothing
OTHERS = ("digits", "strings", "chart", "diagram", "strings", "diagram")  # the last are hard
HARD = ("diagram", "strings", "diagram", "strings", "diagram", "digits", "chart", "diagram")
EACH = ("digits", "strings", "chart", "diagram")
FULL = (0.4, 1.0, 1.0, 1.0)
MIXED = (0.2, 0.4, 0.67, 1.0, 1.0)  # 3, 6, 10 or 15 objects in a picture of 96 pixels


@dataclass(frozen=True)
class Phase:
    """A stretch of training.

    Attributes:
        lesson: "tower" teaches patches alone, "answers" the whole model.
        size: of the images, in pixels.
        steps: how many updates.
        images: in each step; half of them show objects, half the other kinds of scenes.
        rate: factor of the learning rates.
        shares: how full scenes of objects are when questions are asked; drawn for each.
        others: the other kinds of scenes, as often as they are named.
    """

    lesson: str
    size: int
    steps: int
    images: int
    rate: float = 1.0
    shares: tuple[float, ...] = (1.0,)
    others: tuple[str, ...] = OTHERS


COURSE = (
    Phase("tower", 48, 1100, 48, rate=2.0),
    Phase("tower", 64, 700, 32, rate=2.0),
    Phase("answers", 48, 1100, 16, rate=0.5),
    Phase("answers", 64, 150, 16, rate=0.5),
    Phase("tower", 96, 150, 16, rate=1.0),
    Phase("answers", 96, 700, 8, rate=0.5),
    Phase("answers", 96, 150, 8, rate=0.5, shares=MIXED),
    Phase("answers", 96, 700, 8, rate=0.2, shares=MIXED),
    Phase("tower", 96, 450, 16, rate=0.35, others=HARD),
    Phase("answers", 96, 200, 8, rate=0.2, shares=FULL, others=HARD),
    Phase("answers", 96, 400, 8, rate=0.15, shares=FULL, others=HARD),
    Phase("answers", 96, 100, 8, rate=0.15, shares=FULL, others=EACH),
    Phase("answers", 96, 480, 8, rate=0.15, shares=OBJECT_SHARES, others=EACH),
    Phase("answers", 96, 250, 8, rate=0.2, shares=OBJECT_SHARES, others=HARD),
)


def total_steps(course: Sequence[Phase]) -> int:
    """Count the steps of a whole course."""
    return sum(phase.steps for phase in course)


def phase_at(course: Sequence[Phase], step: int) -> tuple[Phase, int]:
    """Find the phase of a step, and how many of its steps came before."""
    for phase in course:
        if step < phase.steps:
            return phase, step
        step -= phase.steps
    raise IndexError(step)


def rate_at(course: Sequence[Phase], step: int) -> float:
    """Learning-rate factor: a short rise in each phase, a fall at the very end."""
    answering = sum(phase.steps for phase in course if phase.lesson == "answers")
    phase, before = phase_at(course, step)
    rise = min(1.0, (before + 1) / RISE)
    return rise * phase.rate * min(1.0, (total_steps(course) - step) / max(1.0, DECAY * answering))
