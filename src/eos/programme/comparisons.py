"""Comparisons: rows of the studies that set found plans beside prior methods."""

from collections.abc import Sequence

from eos.methods.registry import PRESETS
from eos.programme.rows import EOS, SEARCHED_AT, Factors, PlanRow, StudyInputs
from eos.programme.scope import Scope
from eos.programme.searches import (
    CHEAP,
    FIXED_BUDGETS,
    SEED_BUDGETS,
    at,
    cheap,
    cheap_budgets,
    first,
)

LOW_BUDGETS = (32, 16)
CLASSICS = ("sparsevlm-v1", "sparsevlm-v2", "tome", "pool")
ORIGINALS = ("sparsevlm-v2-original", "sparsevlm-v1-original", "sparsevlm-v2", "sparsevlm-v1")


def default_searches(scope: Scope) -> list[str]:
    """Name the first default search of every budget."""
    return [first(scope, budget) for budget in scope.budgets]


def all_seeds(scope: Scope) -> list[str]:
    """Name the default searches of all seeds."""
    return [f"{EOS}-{seed}@{budget}" for seed in scope.seeds for budget in at(scope, SEED_BUDGETS)]


def fixed_searches(scope: Scope) -> list[str]:
    """Name the searches with fixed layers, and the free ones beside them."""
    budgets = at(scope, FIXED_BUDGETS)
    return [name for x in budgets for name in (f"fixed@{x}", first(scope, x))]


def larger_budgets(scope: Scope) -> tuple[int, ...]:
    """Choose the budgets that are searched with one seed only."""
    return tuple(x for x in scope.budgets if x not in at(scope, SEED_BUDGETS))


def cheap_searches(scope: Scope) -> list[str]:
    """Name the searches at the FLOPs of a method that reduces before the decoder."""
    return [cheap(scope, budget) for budget in cheap_budgets(scope)]


def preset_rows(found: StudyInputs) -> list[PlanRow]:
    """Every prior method at the budgets of all seeds."""
    return _presets(found, at(found.scope, SEED_BUDGETS))


def main_rows(found: StudyInputs) -> list[PlanRow]:
    """Every prior method and the plans of every seed, at the budgets of all seeds."""
    return [*seeds_rows(found), *preset_rows(found)]


def larger_rows(found: StudyInputs) -> list[PlanRow]:
    """Every prior method and the found plan at the larger budgets."""
    budgets = larger_budgets(found.scope)
    return [*(found.eos_row(budget) for budget in budgets), *_presets(found, budgets)]


def cheap_rows(found: StudyInputs) -> list[PlanRow]:
    """Plans found at the FLOPs of a method that reduces before the decoder, and that method."""
    rows = []
    for budget in cheap_budgets(found.scope):
        limit, name = found.preset_row(CHEAP, budget), cheap(found.scope, budget)
        own: Factors = {"budget": found.scope.budgets[-1], "flops_of": limit.name}
        rows += [PlanRow(name, found.plans[name], EOS, searched=True, factors=own), limit]
    return rows


def low_rows(found: StudyInputs) -> list[PlanRow]:
    """The found plans beside SparseVLM v2 at the smallest budgets."""
    budgets = at(found.scope, LOW_BUDGETS)
    return [
        row
        for budget in budgets
        for row in (found.eos_row(budget), found.preset_row("sparsevlm-v2", budget))
    ]


def reproduce_rows(found: StudyInputs) -> list[PlanRow]:
    """SparseVLM's own code, the same as points of the space, and what searches make of them."""
    rows = []
    for budget in at(found.scope, FIXED_BUDGETS):
        rows += [found.preset_row(name, budget) for name in ORIGINALS]
        fixed = found.plans[f"fixed@{budget}"]
        own = {"budget": budget}
        rows.append(PlanRow(f"fixed@{budget}", fixed, "eos-fixed", searched=True, factors=own))
        rows.append(found.eos_row(budget))
    return rows


def seeds_rows(found: StudyInputs) -> list[PlanRow]:
    """The plans of every seed."""
    budgets = at(found.scope, SEED_BUDGETS)
    return [_seed_row(found, seed, budget) for budget in budgets for seed in found.scope.seeds]


def budgets_rows(found: StudyInputs) -> list[PlanRow]:
    """One plan rescaled to every budget, the plans searched for each, and classic methods."""
    rows, origin = [], at(found.scope, (64,))[0]
    for budget in found.scope.budgets:
        own = {"budget": budget, "searched_at": origin}
        plan = found.eos(origin).rescaled(budget)
        rows.append(PlanRow(f"eos-one@{budget}", plan, "eos-one", searched=True, factors=own))
        searched_at = found.eos(budget).provenance.get(SEARCHED_AT, budget)
        rows.append(found.eos_row(budget, searched_at=searched_at))
        rows += [found.preset_row(name, budget) for name in CLASSICS]
    return rows


def _presets(found: StudyInputs, budgets: Sequence[int]) -> list[PlanRow]:
    names = PRESETS if found.scope.presets is None else found.scope.presets
    return [found.preset_row(name, budget) for budget in budgets for name in names]


def _seed_row(found: StudyInputs, seed: int, budget: int) -> PlanRow:
    name = f"{EOS}-{seed}@{budget}"
    factors = {"budget": budget, "seed": seed}
    if seed == found.scope.seeds[0]:
        name, plan = f"{EOS}@{budget}", found.eos(budget)
    else:
        plan = found.plans[name]
    return PlanRow(name, plan, EOS, searched=True, factors=factors)
