"""Find, list and check plans for the command line."""

import json
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.table import Table

from eos.config import Artifact
from eos.errors import ConfigError
from eos.evaluation.fidelity import Fidelity
from eos.evaluation.results import Results
from eos.evaluation.settings import Settings
from eos.evaluation.tasks import TASKS
from eos.methods import BudgetKind, Preset, presets
from eos.models.families import FAMILIES
from eos.operator.scorers import SCORERS
from eos.searching.files import configs, purpose, read_config
from eos.searching.profile import Profile
from eos.searching.settings import SearchConfig
from eos.space.plan import Plan
from eos.space.searched import load_searched, searched
from eos.space.theta import Theta, ThetaFile

KINDS = ("final", "mean", "published")
SCHEMAS: dict[str, type[Artifact]] = {
    "eos.plan/1": Plan,
    "eos.theta/1": ThetaFile,
    "eos.preset/1": Preset,
    "eos.evaluation/1": Settings,
    "eos.results/1": Results,
    "eos.search/1": SearchConfig,
    "eos.fidelity/1": Fidelity,
    "eos.profile/1": Profile,
}


def find_plan(
    source: str, *, budget: int | None, kind: str, layers: int, tokens: int, text: int
) -> Plan:
    """Make a plan of a preset's name, a plan or Θ file, or the folder of a run."""
    if kind not in KINDS:
        raise ConfigError(f"expected --kind {', '.join(KINDS)}; found {kind!r}")
    path, wanted = Path(source), cast(BudgetKind, kind)
    if path.is_dir():
        return _plan_of_run(path, budget, wanted)
    if not path.suffix and not path.exists():
        source, budget = _with_budget(source, budget)
        if budget is not None and source in searched():
            return load_searched(source, budget)
        if budget is None:
            raise ConfigError(f"expected --budget for the preset {source!r}; found none")
        return Plan.preset(
            source,
            budget=budget,
            kind=wanted,
            visual_tokens=tokens,
            num_layers=layers,
            text_tokens=text,
        )
    if _schema(path) == "eos.theta/1":
        return Plan.from_theta(Theta.load(path), budget=budget, kind=wanted, text_tokens=text)
    plan = Plan.load(path)
    return plan if budget is None else plan.rescaled(budget, kind=wanted)


def _plan_of_run(folder: Path, budget: int | None, kind: BudgetKind) -> Plan:
    """Take the plan that a run found for this budget; else rescale the one it was asked for.

    A run that has not finished has only Θ.
    """
    own, main = folder / f"plan-{budget}.json", folder / "plan.json"
    if kind == "final" and own.exists():
        return Plan.load(own)
    if not main.exists() and (folder / "theta.json").exists():
        return Plan.from_theta(Theta.load(folder / "theta.json"), budget=budget, kind=kind)
    plan = Plan.load(main)
    return plan if budget is None else plan.rescaled(budget, kind=kind)


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


def catalogue(what: str) -> dict[str, dict[str, str]]:
    """Describe everything that has a name, a line each."""
    scorers = {
        name: f"{(scorer.score.__doc__ or '').splitlines()[0]} Query rows: {scorer.rows}."
        for name, scorer in SCORERS.items()
    }
    everything = {
        "backbones": {name: f"decoder: {family.decoder}" for name, family in FAMILIES.items()},
        "scorers": scorers,
        "presets": {name: f"{preset.what} [{preset.paper}]" for name, preset in presets().items()},
        "tasks": {
            name: f"{task.what} Families: {', '.join(task.families)}."
            for name, task in TASKS.items()
        },
        "configs": {name: purpose(path) for name, path in configs().items()},
    }
    if what == "all":
        return everything
    if what not in everything:
        raise ConfigError(f"expected one of {', '.join(everything)}; found {what!r}")
    return {what: everything[what]}


def show_catalogue(found: dict[str, dict[str, str]]) -> None:
    """Print a table for each kind of thing."""
    for title, entries in found.items():
        table = Table(title=title, title_justify="left", show_header=False)
        for name, description in entries.items():
            table.add_row(name, description.replace("[", "\\["))
        Console().print(table)


def validate_file(path: Path) -> str:
    """Check a file against the schema it claims; return that schema."""
    if path.suffix in (".yaml", ".yml"):  # what people write by hand: a search
        return read_config(path).schema_
    schema = _schema(path)
    if schema not in SCHEMAS:
        raise ConfigError(f"{path}: expected a schema of {', '.join(SCHEMAS)}; found {schema!r}")
    SCHEMAS[schema].load(path)
    return schema


def _schema(path: Path) -> str:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigError(
            f"cannot read {path}: {failure.strerror}; expected a file, or a preset of "
            f"{', '.join(presets())}"
        ) from None
    except ValueError as failure:
        raise ConfigError(f"{path} is not JSON: {failure}") from None
    return str(data.get("schema")) if isinstance(data, dict) else "none"
