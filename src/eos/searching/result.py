"""Result: what a search returns."""

from dataclasses import dataclass, field

from eos.searching.explore import StageRecord
from eos.searching.measure import Gap
from eos.space.plan import Plan
from eos.space.searched import nearest_plan
from eos.space.theta import Theta


@dataclass(frozen=True)
class SearchResult:
    """What a search found; prints as the plan of every budget.

    Attributes:
        theta: Θ, with the scorers, number of layers and sizes of its plans.
        plan: of the configured budget.
        plans: of every budget that was searched, largest first.
        start: which start it came from, or which method found it.
        gaps: what becoming a plan costs, for every budget, largest first; of ``method: paper``.
        skipped: how many samples could not be used, each counted once.
        stages: by budget, what each stage of the search found; of all methods but ``paper``.
    """

    theta: Theta
    plan: Plan
    plans: dict[int, Plan]
    start: str
    gaps: tuple[Gap, ...] = ()
    stages: dict[int, tuple[StageRecord, ...]] = field(default_factory=dict)
    skipped: int = 0

    def plan_at(self, budget: int) -> Plan:
        """Give the plan of a budget: as it was searched, or rescaled from the nearest one."""
        return nearest_plan({self.plan.expected.final_tokens: self.plan, **self.plans}, budget)

    def __str__(self) -> str:
        return "\n\n".join(str(plan) for plan in self.plans.values())
