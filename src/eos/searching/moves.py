"""Moves: small changes of a plan, measured as deployed; the discrete half of the refinement.

Each move changes one step: its share of the tokens, its layer, its operator or its scorer; or the
number of steps. What it changes in the loss is the slope along that coordinate, on the very samples
and in the very context of the plan, so no surrogate stands between the search and what is deployed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from eos.methods.registry import SCORERS
from eos.searching.space import Space
from eos.space.mixture import components, mixture
from eos.space.plan import Plan
from eos.space.step import Operator, Step

Kind: TypeAlias = Literal["tokens", "layers", "operators", "scorers", "steps"]
Ranking: TypeAlias = Mapping[int, Sequence[str]]
FACTORS = (1.3, 1.7)  # by which moves change a step's count, up and down
REACH = 2  # layers that a move shifts a step at most
SHARE = 0.3  # of a scorer that a move mixes in
RIVALS = 3  # scorers of a site, best first, that moves try
# operators that moves try: pruning, merging into the nearest anchors at their norm, a little of it
OPERATORS = (
    Operator(),
    Operator(gamma=1.0, tau=0.1, nu=1.0),
    Operator(gamma=0.15, tau=0.1),
)
# the same with the attention of dropped tokens passed on to their nearest anchors; half of it
MASS_OPERATORS = (
    Operator(tau=0.0, mass=1.0),
    Operator(gamma=1.0, tau=0.1, nu=1.0, mass=1.0),
    Operator(gamma=0.15, tau=0.1, mass=1.0),
    Operator(tau=0.0, mass=0.5),
)


def operators_of(space: Space) -> tuple[Operator, ...]:
    """List the operators to try in a space; the first is what its profile is measured with."""
    if not space.operators:
        return (pruning(space.mass),)
    return (*MASS_OPERATORS, OPERATORS[0]) if space.mass else OPERATORS


def pruning(mass: bool) -> Operator:
    """Prune; with mass, the nearest anchors take over the attention of what is dropped."""
    return MASS_OPERATORS[0] if mass else OPERATORS[0]


def neighbours(plan: Plan, space: Space, *, kind: Kind, ranking: Ranking) -> list[Plan]:
    """List the plans one move of a kind away, fitted to the limits.

    Args:
        plan: where to start.
        space: what is allowed.
        kind: what moves change.
        ranking: by site, its scorers, best first.
    """
    found = [space.plan(steps) for steps in MOVES[kind](plan, space, ranking)]
    return list(dict.fromkeys(new for new in found if new is not None and new != plan))


def _each(plan: Plan, changes: Callable[[Step], Iterator[Step]]) -> Iterator[list[Step]]:
    """Change one step after the other, unless two would act at the same site."""
    for place, step in enumerate(plan.steps):
        others = [*plan.steps[:place], *plan.steps[place + 1 :]]
        taken = {other.layer for other in others}
        for changed in changes(step):
            if changed.layer not in taken:
                yield [*others, changed]


def _counts(plan: Plan, space: Space, ranking: Ranking) -> Iterator[list[Step]]:
    def changes(step: Step) -> Iterator[Step]:
        for factor in FACTORS if step.keep > space.budget else ():
            for keep in (round(step.keep * factor), round(step.keep / factor)):
                kept = min(max(keep, space.budget), space.visual_tokens)
                yield step.model_copy(update={"keep": kept})

    return _each(plan, changes)


def _layers(plan: Plan, space: Space, ranking: Ranking) -> Iterator[list[Step]]:
    """Shift a step; it may pass another one, which then comes after it."""

    def changes(step: Step) -> Iterator[Step]:
        for layer in range(step.layer - REACH, step.layer + REACH + 1):
            if layer in space.scorers:
                known = set(components(step.score)) <= set(space.scorers[layer])
                score = step.score if known else ranking[layer][0]
                yield step.model_copy(update={"layer": layer, "score": score})

    return (sort_counts(steps) for steps in _each(plan, changes))


def _operators(plan: Plan, space: Space, ranking: Ranking) -> Iterator[list[Step]]:
    tried = operators_of(space)
    return _each(plan, lambda step: (step.model_copy(update={"operator": x}) for x in tried))


def _scorers(plan: Plan, space: Space, ranking: Ranking) -> Iterator[list[Step]]:
    return _each(
        plan,
        lambda step: (step.model_copy(update={"score": x}) for x in _scores(step, ranking)),
    )


def _numbers(plan: Plan, space: Space, ranking: Ranking) -> Iterator[list[Step]]:
    """Leave a step out, or add one at a free site."""
    for place in range(len(plan.steps) if len(plan.steps) > 1 else 0):
        yield [*plan.steps[:place], *plan.steps[place + 1 :]]
    if len(plan.steps) < space.max_layers:
        yield from _additions(plan, space, ranking)


def _scores(step: Step, ranking: Ranking) -> Iterator[str]:
    parts, rivals = components(step.score), ranking[step.layer][:RIVALS]
    if len(parts) > 1:
        yield from parts
    # into a scorer that only marks its picks a little of another can be mixed without effect:
    # what is picked stays ahead. The other way round, marks are a bonus for some tokens
    share = 1 - SHARE if any(SCORERS[name].picks for name in parts) else SHARE
    for rival in rivals:
        if rival not in parts:
            yield rival
            rest = {name: weight * (1 - share) for name, weight in parts.items()}
            yield mixture({**rest, rival: share})


def sort_counts(steps: Iterable[Step]) -> list[Step]:
    """Order steps by layer and hand their counts out again: fewer tokens the later."""
    counts = sorted((step.keep for step in steps), reverse=True)
    ordered = sorted(steps, key=lambda step: step.layer)
    return [
        step.model_copy(update={"keep": keep}) for step, keep in zip(ordered, counts, strict=True)
    ]


def _additions(plan: Plan, space: Space, ranking: Ranking) -> Iterator[list[Step]]:
    """Add a step at every free site, halfway in tokens between its neighbours'.

    After the last step the new one keeps the budget, and the last stops halfway before it.
    """
    taken = {step.layer for step in plan.steps}
    for site in space.sites:
        if site in taken:
            continue
        before = [step for step in plan.steps if step.layer < site]
        after = [step for step in plan.steps if step.layer > site]
        new = Step(layer=site, keep=space.budget, score=ranking[site][0])
        if after:
            entering = before[-1].keep if before else space.visual_tokens
            yield [*before, _halfway(new, entering, after[0].keep), *after]
        else:
            entering = before[-2].keep if len(before) > 1 else space.visual_tokens
            yield [*before[:-1], _halfway(before[-1], entering, space.budget), new]


def _halfway(step: Step, more: int, less: int) -> Step:
    return step.model_copy(update={"keep": round((more * less) ** 0.5)})


# in the order in which a round of moves tries them
MOVES: dict[Kind, Callable[[Plan, Space, Ranking], Iterator[list[Step]]]] = {
    "tokens": _counts,
    "layers": _layers,
    "operators": _operators,
    "scorers": _scorers,
    "steps": _numbers,
}
