"""Explore: from a profile to a plan. Shortest paths, a race, moves; the default way to search.

1. The profile's shortest path, those that begin at every other pair of sites, and paths through
   curves drawn anew within their errors, each with every start of the operator: candidates that
   differ where the profile is not certain.
2. A race: all of them on few samples, the better half on more.
3. Rounds of moves: the plans one change away race against the best, one kind of change after the
   other, and the winner is the next to beat.

Every decision is made on the deployed forward pass, on samples that all candidates share.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from random import Random

from eos.config import Frozen
from eos.errors import ConfigError
from eos.estimates import Estimate
from eos.searching.curves import Profile
from eos.searching.judge import Judge
from eos.searching.moves import MOVES, Ranking, neighbours, operators_of
from eos.searching.paths import predicted_loss, read_costs, shortest_path, single_step
from eos.searching.race import Entrant, race, rungs
from eos.searching.space import Space
from eos.space.plan import Plan
from eos.space.step import Step

CAUTIONS = (0.0, 1.0)  # standard errors added to a profile for the first paths
STARTS = 2  # operators that paths start with: pruning, merging
BEGINNINGS = 10  # paths from pairs of sites that race, those of the least predicted loss
REFERENCES = 2  # candidates that choose the samples to decide by, at different layers
FINALISTS = 4  # of a race that are measured on all samples
FIRST = 8  # the first round of a race measures on one in so many pieces


class StageRecord(Frozen):
    """What one stage of a search found, and what all stages so far cost.

    Attributes:
        name: of the stage.
        tried: how many plans it measured.
        disagreement: of the best one, on the samples that the stage decided by.
        passes: compute so far, in forward passes of one sample through the full decoder.
        steps: of the best plan.
    """

    name: str
    tried: int
    disagreement: Estimate
    passes: float
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Found:
    """The best plan of a search for one budget, and how it was reached."""

    best: Entrant
    stages: tuple[StageRecord, ...]


def candidates(profile: Profile, space: Space, *, paths: int, seed: int) -> list[Plan]:
    """Make the plans that race: paths through the profile, with each operator to start from.

    The likeliest path comes first.
    """
    chance = Random(f"eos {seed} paths {space.budget}")
    read = [read_costs(profile, space, caution=caution) for caution in CAUTIONS]
    read += [read_costs(profile, space, chance=chance) for _ in range(paths)]
    found = [shortest_path(costs, space) for costs in read]
    begins = [*((site,) for site in space.sites), *combinations(space.sites, 2)]
    others = [shortest_path(read[0], space, begin=begin) for begin in begins]
    met = [steps for steps in others if steps is not None]
    found += sorted(met, key=lambda steps: predicted_loss(steps, read[0]))[:BEGINNINGS]
    if not any(found):  # FLOPs are rounded up on a path, and the limit may be met without that
        found = [single_step(costs, site, space) for costs in read for site in costs.loss]
    plans = [
        space.plan([step.model_copy(update={"operator": operator}) for step in steps])
        for steps in found
        if steps is not None
        for operator in operators_of(space)[:STARTS]
    ]
    unique = list(dict.fromkeys(plan for plan in plans if plan is not None))
    if not unique:
        raise ConfigError(space.too_tight)
    return unique


def references(starts: Sequence[Plan]) -> list[Plan]:
    """Choose the first candidates that reduce at different layers, to see where samples differ."""
    by_layers: dict[tuple[int, ...], Plan] = {}
    for plan in starts:
        by_layers.setdefault(tuple(step.layer for step in plan.steps), plan)
    return list(by_layers.values())[:REFERENCES]


def explore(
    judge: Judge,
    space: Space,
    starts: Sequence[Plan],
    *,
    ranking: Ranking,
    moves: int,
) -> Found:
    """Search a plan for one space: a race of ``starts``, then ``moves`` rounds of moves.

    Args:
        judge: measures plans.
        space: what is allowed.
        starts: the candidates.
        ranking: by site, its scorers, best first.
        moves: rounds at most.
    """
    pieces = len(judge.pieces)
    rounds = rungs(pieces, first=ceil(pieces / FIRST))
    best = race(judge, starts, rounds=rounds, last=FINALISTS)[0]
    stages = [stage("paths", judge, best, tried=len(starts))]
    for _ in range(moves):
        before = best
        best, tried = _round(judge, best, space, ranking=ranking, rounds=rounds)
        stages.append(stage("moves", judge, best, tried=tried))
        if best is before:
            break
    return Found(best, tuple(stages))


def _round(
    judge: Judge, best: Entrant, space: Space, *, ranking: Ranking, rounds: Sequence[int]
) -> tuple[Entrant, int]:
    """Try all kinds of moves, one after the other; give the best plan and how many were tried."""
    tried = 0
    for kind in MOVES:
        around = neighbours(best.plan, space, kind=kind, ranking=ranking)
        if not around:
            continue
        tried += len(around)
        rivals = race(judge, around, rounds=rounds[min(1, len(rounds) - 1) :], last=2, held=best)
        best = min([best, *rivals], key=lambda entrant: entrant.mean)
    return best, tried


def stage(name: str, judge: Judge, best: Entrant, *, tried: int) -> StageRecord:
    """Note what a stage found."""
    return StageRecord(
        name=name,
        tried=tried,
        disagreement=Estimate(mean=round(best.mean, 6), stderr=round(best.stderr, 6)),
        passes=round(judge.passes, 1),
        steps=best.plan.steps,
    )


def confirm(found: Found, judge: Judge, pieces: range) -> Found:
    """Choose among the stages' plans on samples that no stage has decided by.

    The winner of many comparisons looks better on their samples than it is; fresh ones tell whether
    a later stage has gained anything.
    """
    last = found.best.plan
    plans = [last.model_copy(update={"steps": stage.steps}) for stage in found.stages]
    entrants = [measured(judge, plan, pieces) for plan in dict.fromkeys(plans)]
    best = min(entrants, key=lambda entrant: entrant.mean)
    noted = stage("confirmed", judge, best, tried=len(entrants))
    return Found(best, (*found.stages, noted))


def measured(judge: Judge, plan: Plan, pieces: Iterable[int]) -> Entrant:
    """Measure one plan."""
    return Entrant(plan, judge.disagreement([plan], pieces)[0])
