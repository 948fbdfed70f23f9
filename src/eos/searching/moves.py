"""Moves: small changes of a plan, measured as deployed; the discrete half of the refinement.

Each move changes one step: its layer by one, its share of the tokens, its scorer, its operator.
What it changes in the loss is the slope along that coordinate, on the very samples and in the very
context of the plan, so no surrogate stands between the search and what is deployed.
"""

from collections.abc import Iterator, Sequence

from eos.plan import Plan
from eos.reduce.mixture import components, mixture
from eos.reduce.score import SCORERS
from eos.searching.space import Space
from eos.step import Operator, Step

FACTOR = 1.3  # by which a move changes a step's count
SHARE = 0.3  # of a scorer that a move mixes in
RIVALS = 3  # scorers of a site, best first, that moves try
# operators that moves try: pruning, merging into the nearest anchors at their norm, a little of it
OPERATORS = (
    Operator(),
    Operator(gamma=1.0, tau=0.1, nu=1.0),
    Operator(gamma=0.15, tau=0.1),
)


def neighbours(plan: Plan, space: Space, *, ranking: dict[int, list[str]]) -> list[Plan]:
    """List the plans one move away, fitted to the limits.

    Args:
        plan: where to start.
        space: what is allowed.
        ranking: by site, its scorers, best first.
    """
    found = []
    for place, step in enumerate(plan.steps):
        others = [*plan.steps[:place], *plan.steps[place + 1 :]]
        taken = {other.layer for other in others}
        for changed in _changes(step, space, ranking):
            if changed.layer not in taken:
                found.append(space.plan([*others, changed]))
        if others:
            found.append(space.plan(_ending(others, space)))
    if len(plan.steps) < space.max_layers:
        found += [space.plan(steps) for steps in _additions(plan, space, ranking)]
    unique = dict.fromkeys(new for new in found if new is not None and new != plan)
    return list(unique)


def _changes(step: Step, space: Space, ranking: dict[int, list[str]]) -> Iterator[Step]:
    for layer in (step.layer - 1, step.layer + 1):
        if layer in space.scorers:
            known = set(components(step.score)) <= set(space.scorers[layer])
            score = step.score if known else ranking[layer][0]
            yield step.model_copy(update={"layer": layer, "score": score})
    if step.keep > space.budget:
        for keep in (round(step.keep * FACTOR), round(step.keep / FACTOR)):
            kept = min(max(keep, space.budget), space.visual_tokens)
            yield step.model_copy(update={"keep": kept})
    for score in _scores(step, ranking):
        yield step.model_copy(update={"score": score})
    if space.operators:
        yield from (step.model_copy(update={"operator": operator}) for operator in OPERATORS)


def _scores(step: Step, ranking: dict[int, list[str]]) -> Iterator[str]:
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


def _ending(steps: Sequence[Step], space: Space) -> list[Step]:
    """Let the last of the steps keep the budget."""
    ordered = sorted(steps, key=lambda step: step.layer)
    return [*ordered[:-1], ordered[-1].model_copy(update={"keep": space.budget})]


def _additions(plan: Plan, space: Space, ranking: dict[int, list[str]]) -> Iterator[list[Step]]:
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
