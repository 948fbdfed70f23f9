"""Run `eos plan`: find or make a plan."""

from pathlib import Path
from typing import cast

from eos.commands.validate import read_schema
from eos.errors import ConfigError
from eos.space.plan import BudgetKind, Plan
from eos.space.searched import load_plan_of_run, load_searched, searched
from eos.space.theta import Theta

KINDS = ("final", "mean", "published")


def find_plan(
    source: str, *, budget: int | None, kind: str, layers: int, tokens: int, text: int
) -> Plan:
    """Make a plan of a preset's name, a plan or Θ file, or the folder of a run."""
    if kind not in KINDS:
        raise ConfigError(f"expected --kind {', '.join(KINDS)}; found {kind!r}")
    path, counted = Path(source), cast(BudgetKind, kind)
    if path.is_dir():
        return load_plan_of_run(path, budget, kind=counted)
    if not path.suffix and not path.exists():
        source, budget = _with_budget(source, budget)
        if budget is not None and source in searched():
            return load_searched(source, budget)
        if budget is None:
            raise ConfigError(f"expected --budget for the preset {source!r}; found none")
        return Plan.preset(
            source,
            budget=budget,
            kind=counted,
            visual_tokens=tokens,
            num_layers=layers,
            text_tokens=text,
        )
    if read_schema(path) == "eos.theta/1":
        return Plan.from_theta(Theta.load(path), budget=budget, kind=counted)
    plan = Plan.load(path)
    return plan if budget is None else plan.rescaled(budget, kind=counted)


def _with_budget(source: str, budget: int | None) -> tuple[str, int | None]:
    """Read ``fastv@64`` as a name and a budget; --budget may say it instead, not too."""
    name, at, number = source.rpartition("@")
    if not at:
        return source, budget
    if budget is not None or not number.isdigit():
        raise ConfigError(
            f"expected one budget, as in fastv@64 or fastv --budget 64; found {source!r} and "
            f"--budget {budget}"
        )
    return name, int(number)
