"""Result: what a search returns."""

from dataclasses import dataclass, field

from eos.searching.explore import StageRecord
from eos.searching.measure import Gap
from eos.space.plan import Plan
from eos.space.searched import nearest_plan
from eos.space.theta import Theta
from eos.tables import text_table


@dataclass(frozen=True)
class SearchResult:
    """What a search found; prints as a table of costs, then the plan of every budget.

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
        rows = [[str(budget), *self._cells(budget)] for budget in self.plans]
        measure = "disagreement" if self.stages else "discretisation gap"
        columns = ["budget", "final", "mean", "FLOPs", "KV", measure]
        about = f"{self.plan.backbone}, {'method' if self.stages else 'start'} {self.start}"
        plans = (f"budget {budget}\n{plan}" for budget, plan in self.plans.items())
        return "\n\n".join([f"{about}\n{text_table(columns, rows, left=0)}", *plans])

    def _cells(self, budget: int) -> list[str]:
        """Write what the plan of a budget costs, and how far it is from the full model or Θ."""
        cost = self.plans[budget].expected
        known = [stage.disagreement for stage in self.stages.get(budget, ())[-1:]]
        known += [gap.gap for gap in self.gaps if gap.budget == budget]
        far = f"{known[0].mean:.4f} ± {known[0].stderr:.4f}" if known else "-"
        ratios = [f"{cost.flops_ratio:.3f}", f"{cost.kv_bytes_ratio:.3f}"]
        return [str(cost.final_tokens), f"{cost.mean_tokens:.1f}", *ratios, far]
