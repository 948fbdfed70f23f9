"""Comparisons: studies of found plans beside prior methods, and of ways to search.

For each study the names of the searches that it needs, and its rows.
"""

from collections.abc import Sequence

from eos.methods.registry import PRESETS
from eos.programme.rows import EOS, SEARCHED_AT, Factors, PlanRow, StudyInputs
from eos.programme.scope import Scope
from eos.programme.searches import (
    CHEAP,
    DEFAULT_LAMBDA,
    FIXED_BUDGETS,
    LADDER,
    LADDER_BUDGETS,
    LAMBDAS,
    SEED_BUDGETS,
    SELECTIONS,
    budgets_of,
    cheap_budgets,
    cheap_search,
    default_search,
    descent_budget,
)

LOW_BUDGETS = (32, 16)
CLASSICS = ("sparsevlm-v1", "sparsevlm-v2", "tome", "pool")
ORIGINALS = ("sparsevlm-v2-original", "sparsevlm-v1-original", "sparsevlm-v2", "sparsevlm-v1")


def default_searches(scope: Scope) -> list[str]:
    """Name the first default search of every budget."""
    return [default_search(scope, budget) for budget in scope.budgets]


def all_seeds(scope: Scope) -> list[str]:
    """Name the default searches of all seeds."""
    budgets = budgets_of(scope, SEED_BUDGETS)
    return [f"{EOS}-{seed}@{budget}" for seed in scope.seeds for budget in budgets]


def fixed_searches(scope: Scope) -> list[str]:
    """Name the searches with fixed layers, and the free ones beside them."""
    budgets = budgets_of(scope, FIXED_BUDGETS)
    return [name for x in budgets for name in (f"fixed@{x}", default_search(scope, x))]


def larger_budgets(scope: Scope) -> tuple[int, ...]:
    """Choose the budgets that are searched with one seed only."""
    return tuple(x for x in scope.budgets if x not in budgets_of(scope, SEED_BUDGETS))


def cheap_searches(scope: Scope) -> list[str]:
    """Name the searches at the FLOPs of a method that reduces before the decoder."""
    return [cheap_search(scope, budget) for budget in cheap_budgets(scope)]


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
    budgets = budgets_of(scope, LADDER_BUDGETS)
    names = [f"{name}@{budget}" for budget in budgets for name in ("paper", *LADDER)]
    return [*names, *(default_search(scope, budget) for budget in budgets)]


def preset_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Every prior method at the budgets of all seeds."""
    return _presets(inputs, budgets_of(inputs.scope, SEED_BUDGETS))


def main_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Every prior method and the plans of every seed, at the budgets of all seeds."""
    return [*seeds_rows(inputs), *preset_rows(inputs)]


def larger_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Every prior method and the found plan at the larger budgets."""
    budgets = larger_budgets(inputs.scope)
    return [*(inputs.eos_row(budget) for budget in budgets), *_presets(inputs, budgets)]


def cheap_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Plans found at the FLOPs of a method that reduces before the decoder, and that method."""
    rows = []
    for budget in cheap_budgets(inputs.scope):
        limit, name = inputs.preset_row(CHEAP, budget), cheap_search(inputs.scope, budget)
        own: Factors = {"budget": inputs.scope.budgets[-1], "flops_of": limit.name}
        rows += [PlanRow(name, inputs.plans[name], EOS, searched=True, factors=own), limit]
    return rows


def low_rows(inputs: StudyInputs) -> list[PlanRow]:
    """The found plans beside SparseVLM v2 at the smallest budgets."""
    budgets = budgets_of(inputs.scope, LOW_BUDGETS)
    return [
        row
        for budget in budgets
        for row in (inputs.eos_row(budget), inputs.preset_row("sparsevlm-v2", budget))
    ]


def reproduce_rows(inputs: StudyInputs) -> list[PlanRow]:
    """SparseVLM's own code, the same as points of the space, and what searches make of them."""
    rows = []
    for budget in budgets_of(inputs.scope, FIXED_BUDGETS):
        rows += [inputs.preset_row(name, budget) for name in ORIGINALS]
        fixed = inputs.plans[f"fixed@{budget}"]
        own = {"budget": budget}
        rows.append(PlanRow(f"fixed@{budget}", fixed, "eos-fixed", searched=True, factors=own))
        rows.append(inputs.eos_row(budget))
    return rows


def seeds_rows(inputs: StudyInputs) -> list[PlanRow]:
    """The plans of every seed."""
    budgets = budgets_of(inputs.scope, SEED_BUDGETS)
    return [_seed_row(inputs, seed, budget) for budget in budgets for seed in inputs.scope.seeds]


def budgets_rows(inputs: StudyInputs) -> list[PlanRow]:
    """One plan rescaled to every budget, the plans searched for each, and classic methods."""
    rows, origin = [], budgets_of(inputs.scope, (64,))[0]
    for budget in inputs.scope.budgets:
        own = {"budget": budget, "searched_at": origin}
        plan = inputs.eos(origin).rescaled(budget)
        rows.append(PlanRow(f"eos-one@{budget}", plan, "eos-one", searched=True, factors=own))
        searched_at = inputs.eos(budget).provenance.get(SEARCHED_AT, budget)
        rows.append(inputs.eos_row(budget, searched_at=searched_at))
        rows += [inputs.preset_row(name, budget) for name in CLASSICS]
    return rows


def method_rows(inputs: StudyInputs) -> list[PlanRow]:
    """From the paper's search to the default one, a lever at a time."""
    rows = []
    for budget in budgets_of(inputs.scope, LADDER_BUDGETS):
        for place, name in enumerate(["paper", *LADDER]):
            own: Factors = {"budget": budget, "rung": place, "lever": name}
            plan = inputs.plans[f"{name}@{budget}"]
            rows.append(PlanRow(f"{name}@{budget}", plan, name, searched=True, factors=own))
        rows.append(inputs.eos_row(budget, rung=len(LADDER) + 1, lever="default"))
    return rows


def alignment_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Descents of different weights of the alignment, at three budgets; and without the task."""
    rows, origin = [], descent_budget(inputs.scope)
    named = {f"align-{weight:g}": (weight, 1.0) for weight in LAMBDAS}
    named["ce-off"] = (DEFAULT_LAMBDA, 0.0)
    for name, (weight, ce) in named.items():
        default = (weight, ce) == (DEFAULT_LAMBDA, 1.0)
        plan = inputs.plans[f"{'paper' if default else name}@{origin}"]
        for budget in inputs.scope.sweep:
            factors = {"lambda_a": weight, "ce": ce, "budget": budget}
            label = f"{name}@{budget}"
            rows.append(
                PlanRow(label, plan.rescaled(budget), "paper", searched=True, factors=factors)
            )
    return rows


def selection_rows(inputs: StudyInputs) -> list[PlanRow]:
    """Descents by different estimators of the gradient, with the validation loss of each plan."""
    rows, budget = [], descent_budget(inputs.scope)
    for name in ["paper", *SELECTIONS]:
        plan = inputs.plans[f"{'' if name == 'paper' else 'selection-'}{name}@{budget}"]
        gaps = plan.provenance.get("search", {}).get("gaps", [])
        factors: dict[str, float | str] = {"estimator": name, "budget": budget}
        for gap in gaps:
            if gap["budget"] == budget:
                factors["validation_loss"] = gap["plan"]["mean"]
        rows.append(PlanRow(f"{name}@{budget}", plan, "paper", searched=True, factors=factors))
    return rows


def _presets(inputs: StudyInputs, budgets: Sequence[int]) -> list[PlanRow]:
    names = PRESETS if inputs.scope.presets is None else inputs.scope.presets
    return [inputs.preset_row(name, budget) for budget in budgets for name in names]


def _seed_row(inputs: StudyInputs, seed: int, budget: int) -> PlanRow:
    if seed == inputs.scope.seeds[0]:
        return inputs.eos_row(budget, seed=seed)
    name, factors = f"{EOS}-{seed}@{budget}", {"budget": budget, "seed": seed}
    return PlanRow(name, inputs.plans[name], EOS, searched=True, factors=factors)
