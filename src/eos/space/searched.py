"""Searched: plans that searches found: those of a run's folder, and those in the package, by name.

``eos-miniature`` names the plans of ``results/miniature``: one file a budget, as the search wrote
it. Another budget is rescaled from the nearest of them, by the rule of the paper.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from math import log
from pathlib import Path

from eos.errors import PlanError
from eos.space.plan import BudgetKind, Plan
from eos.space.theta import Theta

PREFIX = "eos-"


@cache
def searched() -> dict[str, dict[int, Path]]:
    """List the plans that come with the package: files by budget, by name."""
    found: dict[str, dict[int, Path]] = {}
    for path in sorted(Path(str(files("eos"))).glob("results/*/plan-*.json")):
        budget = path.stem.removeprefix("plan-")
        if budget.isdigit():
            found.setdefault(PREFIX + path.parent.name, {})[int(budget)] = path
    return found


def load_searched(name: str, budget: int) -> Plan:
    """Load a plan by name, at a budget."""
    if name not in searched():
        raise PlanError(f"expected a searched plan: {', '.join(searched())}; found {name!r}")
    return nearest_plan({own: Plan.load(path) for own, path in searched()[name].items()}, budget)


def load_plan_of_run(
    folder: Path, budget: int | None = None, *, kind: BudgetKind = "final"
) -> Plan:
    """Load the plan that a search found; for another budget, its nearest one is rescaled.

    A search that has not finished has only Θ, which becomes the plan of its present counts.
    """
    main, theta = folder / "plan.json", folder / "theta.json"
    if not main.exists() and theta.exists():
        return Plan.from_theta(Theta.load(theta), budget=budget, kind=kind)
    plan = Plan.load(main)
    if budget is None:
        return plan
    if kind != "final":
        return plan.rescaled(budget, kind=kind)
    named = {path.stem.removeprefix("plan-"): path for path in folder.glob("plan-*.json")}
    found = {int(own): Plan.load(path) for own, path in named.items() if own.isdigit()}
    return nearest_plan({plan.expected.final_tokens: plan, **found}, budget)


def nearest_plan(plans: Mapping[int, Plan], budget: int) -> Plan:
    """Take the plan of a budget; else rescale that of the nearest budget, by the paper's rule."""
    if budget < 1:
        raise PlanError(f"expected a budget of 1 token or more, found {budget}")
    nearest = min(plans, key=lambda own: abs(log(own / budget)))
    return plans[nearest] if nearest == budget else plans[nearest].rescaled(budget)
