"""Paper tables: which plans, budgets and benchmarks each table of the paper compares, as YAML.

All tables share one evaluation folder for each benchmark: a plan that two of them have answers its
questions once. A table is a choice of its rows and columns.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field, PositiveInt, model_validator
from typing_extensions import Self

from eos.config import Artifact, ProblemsError
from eos.errors import ConfigError
from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.overall import Overall
from eos.evaluation.settings import FULL
from eos.methods.registry import PRESETS
from eos.searching.result import SearchResult
from eos.space.plan import Plan
from eos.space.starts import default_layers
from eos.space.step import Step

Placement: TypeAlias = Literal["middle-2", "middle+2", "default-layers", "without-middle"]


class PaperTable(Artifact):
    """A table of the paper.

    Attributes:
        title: what it shows.
        label: of the table in the paper's source.
        backbone: 'miniature', a folder, or a model's name on the hub.
        dtype: of the weights.
        tasks: benchmarks, in the order of the columns.
        budgets: final visual tokens.
        plans: presets and names of searches, in the order of the rows of each budget.
        searches: arguments of `eos search`, by name; each is searched once for all tables.
        placements: further rows of each budget: the first search's plan at other layers.
        batch_size: questions at once.
    """

    schema_: Literal["eos.table/1"] = Field(default="eos.table/1", alias="schema")
    title: str
    label: str
    backbone: str
    dtype: Literal["float32", "bfloat16", "float16"]
    tasks: tuple[str, ...]
    budgets: tuple[PositiveInt, ...]
    plans: tuple[str, ...]
    searches: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    placements: tuple[Placement, ...] = ()
    batch_size: PositiveInt = 16

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        known = {"tasks": [*BENCHMARKS], "plans": [*PRESETS, *self.searches]}
        problems = [
            f"{key}: expected names of {', '.join(names)}; found {name!r}"
            for key, names in known.items()
            for name in (self.tasks if key == "tasks" else self.plans)
            if name not in names
        ]
        if self.placements and not self.searches:
            problems.append("placements: expected a search, whose plan they change; found none")
        if problems:
            raise ProblemsError(problems)
        return self

    @property
    def rows(self) -> list[str]:
        """The names of its runs, the full model's first."""
        names = [*self.plans, *self.placements]
        return [FULL, *(f"{name}@{budget}" for budget in self.budgets for name in names)]


def paper_tables() -> dict[str, Path]:
    """Find the packaged tables, by name, in the order of the paper."""
    folder = Path(str(files("eos"))) / "configs" / "paper" / "tables"
    return {name: folder / f"{name}.yaml" for name in ORDER}


def read_table(name: str | Path) -> PaperTable:
    """Read a table by name, or from a YAML file."""
    known = paper_tables()
    if str(name) not in known and not str(name).endswith((".yaml", ".yml")):
        close = get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"expected a YAML file or a table of {', '.join(known)}; found {str(name)!r}{hint}"
        )
    return PaperTable.load(known.get(str(name), name))


def plans_of(
    table: PaperTable, found: Mapping[str, SearchResult], sizes: Mapping[str, Any]
) -> dict[str, Plan]:
    """Make a table's plans, by the names of their rows.

    Args:
        table: the table.
        found: what each search found.
        sizes: of the model, as `Plan.preset` takes them.
    """
    made: dict[str, Plan] = {}
    for budget in table.budgets:
        for name in table.plans:
            own = found[name].plan_at(budget) if name in found else None
            made[f"{name}@{budget}"] = own or Plan.preset(name, budget=budget, **sizes)
        for placement in table.placements:
            plan = found[next(iter(table.searches))].plan_at(budget)
            made[f"{placement}@{budget}"] = PLACEMENTS[placement](plan)
    return made


def shift_middle(plan: Plan, by: int) -> Plan:
    """Move the middle step by some layers, not beyond its neighbours."""
    layers, middle = [step.layer for step in plan.steps], len(plan.steps) // 2
    if not layers:
        return plan
    low = layers[middle - 1] + 1 if middle else 0
    high = layers[middle + 1] - 1 if middle + 1 < len(layers) else plan.num_layers - 1
    layers[middle] = max(low, min(high, layers[middle] + by))
    return _with_steps(plan, zip(plan.steps, layers, strict=True))


def at_default_layers(plan: Plan) -> Plan:
    """Put the last steps at {2, 6, 15} of 32 layers, or at the same share of another depth."""
    layers = default_layers(plan.num_layers)
    count = min(len(layers), len(plan.steps))
    last = plan.steps[len(plan.steps) - count :]
    return _with_steps(plan, zip(last, layers[len(layers) - count :], strict=True))


def without_middle(plan: Plan) -> Plan:
    """Leave out the middle step; of two steps the first, of one none."""
    middle = (len(plan.steps) - 1) // 2
    left = [step for place, step in enumerate(plan.steps) if place != middle] or plan.steps
    return _with_steps(plan, ((step, step.layer) for step in left))


def _with_steps(plan: Plan, steps: Iterable[tuple[Step, int]]) -> Plan:
    moved = tuple(step.model_copy(update={"layer": layer}) for step, layer in steps)
    return plan.model_copy(update={"steps": moved, "provenance": {}})


def choose_rows(overall: Overall, table: PaperTable) -> Overall:
    """Take a table's rows, in its order, of an evaluation that may have more."""
    known = {row.name: row for row in overall.rows}
    return overall.model_copy(update={"rows": tuple(known[name] for name in table.rows)})


def all_searches(tables: Iterable[PaperTable]) -> dict[str, tuple[str, ...]]:
    """Give the arguments of all searches of several tables; one name has one meaning."""
    found: dict[str, tuple[str, ...]] = {}
    for table in tables:
        for name, arguments in table.searches.items():
            if found.setdefault(name, arguments) != arguments:
                raise ConfigError(
                    f"expected the search {name!r} as in an earlier table, "
                    f"{' '.join(found[name])}; found {' '.join(arguments)}"
                )
    return found


ORDER = ("reproduce", "main", "low", "budgets", "placement")
PLACEMENTS: dict[Placement, Callable[[Plan], Plan]] = {
    "middle-2": partial(shift_middle, by=-2),
    "middle+2": partial(shift_middle, by=2),
    "default-layers": at_default_layers,
    "without-middle": without_middle,
}
