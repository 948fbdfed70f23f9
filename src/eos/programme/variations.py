"""Variations: plans that differ from a found one in one respect."""

from collections.abc import Sequence

from eos.searching.planner import works_early
from eos.space.plan import Plan
from eos.space.step import Operator

PARAMETERS: dict[str, tuple[float, ...]] = {  # values of the central reducer's operator
    "gamma": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0),
    "tau": (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0),
    "theta": (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75),
    "rho": (0.0, 0.5, 1.0, 2.0),
    "nu": (0.0, 0.25, 0.5, 0.75, 1.0),
}


def sites(plan: Plan) -> range:
    """List where a plan may reduce: before the decoder, and after every layer but the last."""
    return range(-1, max(1, plan.num_layers - 1))


def placed(plan: Plan, layers: Sequence[int]) -> Plan | None:
    """Put a plan's reducers at other layers, in any order; None if that cannot be.

    Scores and operators go with the reducers; counts stay in the order of the layers.
    """
    if len(set(layers)) < len(plan.steps) or not set(layers) <= set(sites(plan)):
        return None
    moved = sorted(zip(layers, plan.steps, strict=True), key=lambda pair: pair[0])
    if moved[0][0] == -1 and not works_early(moved[0][1].score):
        return None
    counts = [step.keep for step in plan.steps]
    steps = tuple(
        step.model_copy(update={"layer": layer, "keep": keep})
        for (layer, step), keep in zip(moved, counts, strict=True)
    )
    return plan.model_copy(update={"steps": steps})


def moved(plan: Plan, reducer: int, layer: int) -> Plan | None:
    """Put one reducer at another layer; None if that cannot be."""
    layers = [step.layer for step in plan.steps]
    layers[reducer] = layer
    return placed(plan, layers)


def central(plan: Plan) -> int:
    """Say which reducer is the central one: the second of three, the first of two."""
    return (len(plan.steps) - 1) // 2


def with_parameter(plan: Plan, name: str, value: float) -> Plan | None:
    """Set one number of the central reducer's operator; None if it has an author's own."""
    place = central(plan)
    operator = plan.steps[place].operator
    if not isinstance(operator, Operator):
        return None
    steps = list(plan.steps)
    changed = Operator(**{**operator.model_dump(), name: value})
    steps[place] = steps[place].model_copy(update={"operator": changed})
    return plan.model_copy(update={"steps": tuple(steps)})


def without(plan: Plan, reducer: int) -> Plan | None:
    """Leave a reducer out; None if it is the last one, which keeps the budget."""
    if reducer == len(plan.steps) - 1:
        return None
    steps = tuple(step for place, step in enumerate(plan.steps) if place != reducer)
    return plan.model_copy(update={"steps": steps})


def spread(values: Sequence[int], count: int) -> list[int]:
    """Choose at most ``count`` values, evenly, the first and last included.

    >>> spread(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
