"""Policies: rows of the studies that compare ways to search."""

from eos.programme.rows import Factors, PlanRow, StudyInputs
from eos.programme.scope import Scope
from eos.programme.searches import (
    DEFAULT_LAMBDA,
    LADDER,
    LADDER_BUDGETS,
    LAMBDAS,
    SELECTIONS,
    at,
    descent_budget,
    first,
)


def method_rows(found: StudyInputs) -> list[PlanRow]:
    """From the paper's search to the default one, a lever at a time."""
    rows = []
    for budget in at(found.scope, LADDER_BUDGETS):
        for place, name in enumerate(["paper", *LADDER]):
            own: Factors = {"budget": budget, "rung": place, "lever": name}
            plan = found.plans[f"{name}@{budget}"]
            rows.append(PlanRow(f"{name}@{budget}", plan, name, searched=True, factors=own))
        rows.append(found.eos_row(budget, rung=len(LADDER) + 1, lever="default"))
    return rows


def alignment_rows(found: StudyInputs) -> list[PlanRow]:
    """Descents of different weights of the alignment, at three budgets; and without the task."""
    rows, origin = [], descent_budget(found.scope)
    named = {f"align-{weight:g}": (weight, 1.0) for weight in LAMBDAS}
    named["ce-off"] = (DEFAULT_LAMBDA, 0.0)
    for name, (weight, ce) in named.items():
        default = (weight, ce) == (DEFAULT_LAMBDA, 1.0)
        plan = found.plans[f"{'paper' if default else name}@{origin}"]
        for budget in found.scope.sweep:
            factors = {"lambda_a": weight, "ce": ce, "budget": budget}
            label = f"{name}@{budget}"
            rows.append(
                PlanRow(label, plan.rescaled(budget), "paper", searched=True, factors=factors)
            )
    return rows


def selection_rows(found: StudyInputs) -> list[PlanRow]:
    """Descents by different estimators of the gradient, with the validation loss of each plan."""
    rows, budget = [], descent_budget(found.scope)
    for name in ["paper", *SELECTIONS]:
        plan = found.plans[f"{'' if name == 'paper' else 'selection-'}{name}@{budget}"]
        gaps = plan.provenance.get("search", {}).get("gaps", [])
        factors: dict[str, float | str] = {"estimator": name, "budget": budget}
        for gap in gaps:
            if gap["budget"] == budget:
                factors["validation_loss"] = gap["plan"]["mean"]
        rows.append(PlanRow(f"{name}@{budget}", plan, "paper", searched=True, factors=factors))
    return rows


def descents(scope: Scope) -> list[str]:
    """Name the descents of every weight of the alignment."""
    budget = descent_budget(scope)
    names = [f"align-{x:g}@{budget}" for x in LAMBDAS if x != DEFAULT_LAMBDA]
    return [f"paper@{budget}", *names, f"ce-off@{budget}"]


def estimators(scope: Scope) -> list[str]:
    """Name the descents by every estimator of the gradient."""
    budget = descent_budget(scope)
    return [f"paper@{budget}", *(f"selection-{x}@{budget}" for x in SELECTIONS)]


def ladder_searches(scope: Scope) -> list[str]:
    """Name the searches from the paper's to the default one."""
    budgets = at(scope, LADDER_BUDGETS)
    names = [f"{name}@{budget}" for budget in budgets for name in ("paper", *LADDER)]
    return [*names, *(first(scope, budget) for budget in budgets)]
