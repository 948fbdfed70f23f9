"""Sweeps: rows of the studies that change one respect of a found plan."""

from eos.programme.rows import Factors, PlanRow, StudyInputs
from eos.programme.searches import at
from eos.programme.variations import (
    PARAMETERS,
    central,
    moved,
    placed,
    sites,
    spread,
    with_parameter,
    without,
)
from eos.space.plan import Plan
from eos.space.starts import default_layers

SLICE_BUDGETS = (64, 16)
QUICK_PARAMETERS = {"gamma": (0.0, 0.25, 0.5, 1.0), "tau": (0.0, 0.1, 0.5, 5.0)}
HEAT = 5  # layers of each side of the heat map
SHIFT = 2  # layers by which a reducer is misplaced


def operator_rows(found: StudyInputs) -> list[PlanRow]:
    """Each number of the central reducer's operator swept, the others as found."""
    quick = found.scope.quick
    rows = []
    for budget in found.scope.budgets[-1:] if quick else found.scope.sweep:
        base = found.eos(budget)
        rows.append(found.eos_row(budget))
        for name, values in (QUICK_PARAMETERS if quick else PARAMETERS).items():
            for value in values:
                plan = with_parameter(base, name, value)
                factors: Factors = {"parameter": name, "value": value, "budget": budget}
                if plan is not None:
                    label = f"{name}={value:g}@{budget}"
                    rows.append(PlanRow(label, plan, "swept", factors=factors))
    return rows


def layers_rows(found: StudyInputs) -> list[PlanRow]:
    """Each reducer at every layer, the others as found."""
    rows = []
    for budget in at(found.scope, SLICE_BUDGETS):
        base = found.eos(budget)
        rows.append(found.eos_row(budget))
        for place in range(len(base.steps)):
            for layer in spread(sites(base), found.scope.slices):
                plan = moved(base, place, layer)
                if plan is None:
                    continue
                name = f"l{place + 1}"
                factors: Factors = {"parameter": name, "value": layer, "budget": budget}
                label = f"{name}={layer}@{budget}"
                rows.append(PlanRow(label, plan, "swept", factors=factors))
    return rows


def heatmap_rows(found: StudyInputs) -> list[PlanRow]:
    """First and last reducer at pairs of layers, the others as found."""
    budget = found.scope.budgets[-1]
    base = found.eos(budget)
    layers = [step.layer for step in base.steps]
    between = set(layers[1:-1])
    free = [site for site in sites(base) if site not in between]
    rows = [found.eos_row(budget, l1=layers[0], l3=layers[-1])]
    firsts = sorted({*spread(free[:-1], HEAT), layers[0]})
    lasts = sorted({*spread(free[1:], HEAT), layers[-1]})
    for l1, l3 in [(l1, l3) for l1 in firsts for l3 in lasts if l1 < l3]:
        plan = placed(base, [l1, *layers[1:-1], l3]) if len(layers) > 1 else None
        if plan is not None:
            factors = {"l1": l1, "l3": l3, "budget": budget}
            rows.append(PlanRow(f"l1={l1},l3={l3}@{budget}", plan, "swept", factors=factors))
    return rows


def placement_rows(found: StudyInputs) -> list[PlanRow]:
    """Reducers of the smallest budget's plan misplaced; as they are, and at the plan's FLOPs."""
    budget = found.scope.budgets[-1]
    base = found.eos(budget)
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
    rows = [found.eos_row(budget, perturbation="none", flops="as placed", layers=_layers(base))]
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
