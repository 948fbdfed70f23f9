"""Race: successive halving. Many plans on few samples, the better half on more, until one wins."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from torch import Tensor

from eos.estimates import stderr
from eos.searching.judge import Judge
from eos.space.plan import Plan


@dataclass(frozen=True)
class Entrant:
    """A plan and its disagreement on the samples that it was measured on, ``[S]``."""

    plan: Plan
    values: Tensor

    @property
    def mean(self) -> float:
        """Mean disagreement."""
        return float(self.values.mean())

    @property
    def stderr(self) -> float:
        """Standard error of the mean."""
        return stderr(self.values.tolist())


def rungs(pieces: int, *, first: int = 1) -> list[int]:
    """List how many pieces each round of a race measures on: doubled until all.

    >>> rungs(8, first=2), rungs(6, first=1)
    ([2, 4, 8], [1, 2, 4, 6])
    """
    found = [min(first, pieces)]
    while found[-1] < pieces:
        found.append(min(2 * found[-1], pieces))
    return found


def race(
    judge: Judge,
    plans: Sequence[Plan],
    *,
    rounds: Sequence[int],
    last: int = 1,
    held: Entrant | None = None,
) -> list[Entrant]:
    """Halve the field after every round, down to ``last`` before the final one.

    Args:
        judge: measures plans.
        plans: the field.
        rounds: how many pieces each round measures on, more and more.
        last: how many plans the final round measures at least.
        held: the plan to beat, measured on all pieces; plans that are certainly worse are dropped.

    Returns:
        The plans of the final round, on all of its samples, best first; the earlier of equals wins.
        Empty if all were certainly worse than the plan to beat.
    """
    field = list(dict.fromkeys(plans))
    entrants: list[Entrant] = []
    for number, pieces in enumerate(rounds, start=1):
        values = judge.disagreement(field, range(pieces))
        entrants = sorted(
            (Entrant(plan, row) for plan, row in zip(field, values, strict=True)),
            key=lambda entrant: entrant.mean,
        )
        entrants = [entrant for entrant in entrants if held is None or not _worse(entrant, held)]
        if number < len(rounds):
            entrants = entrants[: max(last, ceil(len(field) / 2))]
        field = [entrant.plan for entrant in entrants]
    return entrants


def _worse(entrant: Entrant, held: Entrant) -> bool:
    """Whether a plan is worse than another on the same first samples, by two standard errors."""
    excess = Entrant(entrant.plan, entrant.values - held.values[: len(entrant.values)])
    return excess.mean > 2 * excess.stderr
