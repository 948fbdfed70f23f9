"""Specs: how a person names plans, for every command and for `eos.evaluate`.

``fastv@64`` and ``fastv@192,64`` are presets at budgets, made for the model at hand;
``eos-miniature@64`` is a searched plan that comes with the package. ``plan.json``, ``theta.json``
and a run's folder are read; ``hub:organisation/name`` is a repository of plans on the Hugging Face
hub, ``hub:organisation/name@64,32`` at budgets; ``NAME=plan.json`` says what a plan is called in
tables.
"""

from pathlib import Path
from typing import NamedTuple

from eos.config import read_schema
from eos.errors import ConfigError
from eos.methods.registry import PRESETS
from eos.sizes import Dims
from eos.space.cost import LLAMA_7B, TEXT_TOKENS
from eos.space.hub import PREFIX, load_pretrained
from eos.space.plan import BudgetKind, Plan
from eos.space.searched import load_plan_of_run, load_searched, searched
from eos.space.theta import Theta


class Target(NamedTuple):
    """Sizes of the model that plans are made for."""

    visual_tokens: int = 576
    num_layers: int = 32
    dims: Dims = LLAMA_7B
    text_tokens: int = TEXT_TOKENS


def read_spec(
    spec: str, target: Target, *, budget: int | None = None, kind: BudgetKind = "final"
) -> list[tuple[str, Plan]]:
    """Read the plans of one spec, each with its name in tables.

    ``budget`` is that of a preset named without one; the plan of a file is rescaled to it. ``kind``
    says what budgets count, as in `Plan.preset`.
    """
    hub = _hub(spec, budget)
    if hub is not None:
        name, repo, counts = hub
        names = [f"{name}@{count}" if len(counts) > 1 else name for count in counts]
        plans = [load_pretrained(repo, budget=count, kind=kind) for count in counts]
        return list(zip(names, plans, strict=True))
    file = _file(spec)
    if file is not None:
        name, path = file
        folder = path if path.is_dir() else path.parent
        main = path.is_dir() or path.stem in ("plan", "theta")
        own = folder.resolve().name if main else path.stem
        return [(name or own, _load(path, budget=budget, kind=kind))]
    name, budgets = _split(spec, budget)
    return [(f"{name}@{count}", _make(name, count, target, kind=kind)) for count in budgets]


def check_spec(spec: str) -> None:
    """Raise if a spec's file cannot be read, or its name is unknown; no model's sizes are needed.

    >>> check_spec("fastv@64")
    """
    file, hub = _file(spec), _hub(spec, None)
    if hub is not None:
        load_pretrained(hub[1])
    elif file is None:
        _split(spec, None)
    else:
        _load(file[1], budget=None, kind="final")


def _hub(spec: str, budget: int | None) -> tuple[str, str, list[int | None]] | None:
    """Read a spec as a name, a repository and budgets; None if it names no repository."""
    name, _, rest = spec.rpartition("=")
    if not rest.startswith(PREFIX):
        return None
    repo, at, counts = rest.removeprefix(PREFIX).partition("@")
    budgets: list[int | None] = [*_budgets(spec, counts, budget)] if at else [budget]
    return name or repo.rpartition("/")[2], repo, budgets


def _file(spec: str) -> tuple[str, Path] | None:
    """Read a spec as a name, which may be empty, and a file or folder; None if it is a preset."""
    name, equals, file = spec.rpartition("=")
    path = Path(file)
    return (name, path) if equals or path.exists() or path.suffix == ".json" else None


def _load(path: Path, *, budget: int | None, kind: BudgetKind) -> Plan:
    if path.is_dir():
        return load_plan_of_run(path, budget, kind=kind)
    if read_schema(path) == "eos.theta/1":
        return Plan.from_theta(Theta.load(path), budget=budget, kind=kind)
    plan = Plan.load(path)
    return plan if budget is None else plan.rescaled(budget, kind=kind)


def _make(name: str, budget: int, target: Target, *, kind: BudgetKind) -> Plan:
    if name in searched():
        return load_searched(name, budget)
    return Plan.preset(name, budget=budget, kind=kind, **target._asdict())


def _split(spec: str, budget: int | None) -> tuple[str, list[int]]:
    """Read ``fastv@192,64`` as a name and its budgets; ``budget`` may give one instead."""
    name, at, counts = spec.partition("@")
    if name not in PRESETS and name not in searched():
        raise ConfigError(
            "expected a plan's file, a run's folder, or a name with a budget, as in fastv@64; "
            f"found {name!r}, which is none of {', '.join([*searched(), *PRESETS])}"
        )
    if not at and budget is not None:
        return name, [budget]
    return name, _budgets(spec, counts, budget)


def _budgets(spec: str, counts: str, budget: int | None) -> list[int]:
    """Read the budgets after an @, beside which no other may be given."""
    if budget is not None:
        raise ConfigError(
            f"expected one budget, as in fastv@64 or fastv --budget 64; found {spec!r} and "
            f"--budget {budget}"
        )
    try:
        return [int(part) for part in counts.split(",")]
    except ValueError:
        raise ConfigError(
            f"expected a name and its budgets, fastv@192,64, or one as in fastv@64; found {spec!r}"
        ) from None
