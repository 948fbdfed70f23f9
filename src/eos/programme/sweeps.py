"""Sweeps: studies of plans that differ from a found one in one respect."""

from collections.abc import Sequence

from eos.programme.rows import Factors, PlanRow, StudyInputs
from eos.programme.searches import budgets_of
from eos.searching.planner import works_early
from eos.space.plan import Plan
from eos.space.starts import default_layers
from eos.space.step import Operator

SLICE_BUDGETS = (64, 16)
PARAMETERS: dict[str, tuple[float, ...]] = {  # values of the central reducer's operator
    "gamma": (0.0, 0.1, 0.25, 0.5, 0.75, 1.0),
    "tau": (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0),
    "theta": (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75),
    "rho": (0.0, 0.5, 1.0, 2.0),
    "nu": (0.0, 0.25, 0.5, 0.75, 1.0),
}
QUICK_PARAMETERS = {"gamma": (0.0, 0.25, 0.5, 1.0), "tau": (0.0, 0.1, 0.5, 5.0)}
HEAT = 5  # layers of each side of the heat map
SHIFT = 2  # layers by which a reducer is misplaced


def operator_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Each number of the central reducer's operator swept, the others as found."""
    quick = inputs.scope.quick
    rows = []
    for budget in inputs.scope.budgets[-1:] if quick else inputs.scope.sweep:
        base = inputs.eos(budget)
        rows.append(inputs.eos_row(budget))
        for name, values in (QUICK_PARAMETERS if quick else PARAMETERS).items():
            for value in values:
                plan = with_parameter(base, name, value)
                factors: Factors = {"parameter": name, "value": value, "budget": budget}
                if plan is not None:
                    label = f"{name}={value:g}@{budget}"
                    rows.append(PlanRow(label, plan, "swept", factors=factors))
    return rows


def layers_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Each reducer at every layer, the others as found."""
    rows = []
    for budget in budgets_of(inputs.scope, SLICE_BUDGETS):
        base = inputs.eos(budget)
        rows.append(inputs.eos_row(budget))
        for place in range(len(base.steps)):
            for layer in spread(sites(base), inputs.scope.slices):
                plan = moved(base, place, layer)
                if plan is None:
                    continue
                name = f"l{place + 1}"
                factors: Factors = {"parameter": name, "value": layer, "budget": budget}
                label = f"{name}={layer}@{budget}"
                rows.append(PlanRow(label, plan, "swept", factors=factors))
    return rows


def heatmap_rows(inputs: StudyInputs) -> list[PlanRow]:
    """First and last reducer at pairs of layers, the others as found."""
    budget = inputs.scope.budgets[-1]
    base = inputs.eos(budget)
    layers = [step.layer for step in base.steps]
    between = set(layers[1:-1])
    free = [site for site in sites(base) if site not in between]
    rows = [inputs.eos_row(budget, l1=layers[0], l3=layers[-1])]
    firsts = sorted({*spread(free[:-1], HEAT), layers[0]})
    lasts = sorted({*spread(free[1:], HEAT), layers[-1]})
    for l1, l3 in [(l1, l3) for l1 in firsts for l3 in lasts if l1 < l3]:
        plan = placed(base, [l1, *layers[1:-1], l3]) if len(layers) > 1 else None
        if plan is not None:
            factors = {"l1": l1, "l3": l3, "budget": budget}
            rows.append(PlanRow(f"l1={l1},l3={l3}@{budget}", plan, "swept", factors=factors))
    return rows


def placement_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Reducers of the smallest budget's plan misplaced; as they are, and at the plan's FLOPs."""
    budget = inputs.scope.budgets[-1]
    base = inputs.eos(budget)
    middle, last = central(base), len(base.steps) - 1
    plans: dict[str, Plan | None] = {}
    for who, place in {"central": middle, "last": last}.items():
        layer = base.steps[place].layer
        plans[f"{who} earlier by {SHIFT}"] = moved(base, place, layer - SHIFT)
        plans[f"{who} later by {SHIFT}"] = moved(base, place, layer + SHIFT)
    defaults = default_layers(base.num_layers)
    if len(defaults) == len(base.steps):
        plans["layers of SparseVLM"] = placed(base, defaults)
    plans["no central reducer"] = without(base, middle)
    rows = [inputs.eos_row(budget, perturbation="none", flops="as placed", layers=_layers(base))]
    for name, plan in plans.items():
        if plan is None:
            continue
        level = plan.fitted(base.expected.flops_ratio)
        for flops, own in {"as placed": plan, "equal": level}.items():
            factors: Factors = {"budget": budget, "perturbation": name, "flops": flops}
            factors = {**factors, "layers": _layers(own)}
            rows.append(PlanRow(f"{name}, FLOPs {flops}@{budget}", own, "moved", factors=factors))
    return rows


def _layers(plan: Plan) -> str:
    return ",".join(str(step.layer) for step in plan.steps)


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
