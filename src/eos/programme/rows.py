"""Rows: a study's rows before they are answered, and what they are made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from eos.methods.registry import PRESETS
from eos.programme.scope import Scope
from eos.programme.searches import default_search
from eos.space.plan import Plan
from eos.space.specs import Target

Factors: TypeAlias = Mapping[str, float | str]
EOS = "eos"  # method of the default search's plans
SEARCHED_AT = "searched_at"  # in the provenance of a plan that was rescaled from another budget's


@dataclass(frozen=True)
class PlanRow:
    """A row of a study before it is answered."""

    name: str
    plan: Plan
    method: str
    searched: bool = False
    factors: Factors = field(default_factory=dict)


@dataclass(frozen=True)
class StudyInputs:
    """What rows are made from: the programme's scope, plans by search, the model's sizes."""

    scope: Scope
    plans: Mapping[str, Plan]
    target: Target

    def eos(self, budget: int) -> Plan:
        """Give the plan of the first default search."""
        return self.plans[default_search(self.scope, budget)]

    def eos_row(self, budget: int, **factors: float | str) -> PlanRow:
        """Make the row of the first default search's plan."""
        own = {"budget": budget, **factors}
        return PlanRow(f"{EOS}@{budget}", self.eos(budget), EOS, searched=True, factors=own)

    def preset_row(self, name: str, budget: int) -> PlanRow:
        """Make the row of a prior method, at the next budget that it can make."""
        count = PRESETS[name].nearest_budget(budget)
        plan = Plan.preset(name, budget=count, **self.target._asdict())
        return PlanRow(f"{name}@{count}", plan, name, factors={"budget": budget})
