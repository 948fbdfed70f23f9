"""Searched: plans that searches found and that come with the package, by name.

``eos-miniature`` names the plans of ``results/miniature``: one file a budget, as the search wrote
it. Another budget is rescaled from the nearest of them, by the rule of the paper.
"""

from functools import cache
from importlib.resources import files
from math import log
from pathlib import Path

from eos.errors import PlanError
from eos.space.plan import Plan

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
    if budget < 1:
        raise PlanError(f"expected a budget of 1 token or more, found {budget}")
    known = searched()[name]
    nearest = min(known, key=lambda own: abs(log(own / budget)))
    plan = Plan.load(known[nearest])
    return plan if nearest == budget else plan.rescaled(budget)
