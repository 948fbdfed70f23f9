"""Run `eos ls`: list everything that has a name."""

from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from eos.errors import ConfigError
from eos.evaluation.tasks import TASKS
from eos.methods.registry import METHODS, SCORERS
from eos.models.families import FAMILIES


def catalogue(what: str) -> dict[str, dict[str, str]]:
    """Describe everything that has a name, a line each."""
    if what not in ("all", *LISTS):
        raise ConfigError(f"expected one of {', '.join(LISTS)}; found {what!r}")
    return {name: entries() for name, entries in LISTS.items() if what in ("all", name)}


def show_catalogue(found: dict[str, dict[str, str]]) -> None:
    """Print a table for each kind of thing."""
    for title, entries in found.items():
        table = Table(title=title, title_justify="left", show_header=False)
        for name, description in entries.items():
            table.add_row(name, description.replace("[", "\\["))
        Console().print(table)


def _backbones() -> dict[str, str]:
    return {name: f"decoder: {family.decoder}" for name, family in FAMILIES.items()}


def _scorers() -> dict[str, str]:
    return {
        name: f"{(scorer.score.__doc__ or '').splitlines()[0]} Query rows: {scorer.rows}."
        for name, scorer in SCORERS.items()
    }


def _presets() -> dict[str, str]:
    found = [(method.paper, preset) for method in METHODS.values() for preset in method.presets]
    return {preset.name: f"{preset.what} [{paper}]" for paper, preset in found}


def _tasks() -> dict[str, str]:
    return {
        name: f"{task.what} Families: {', '.join(task.families)}." for name, task in TASKS.items()
    }


def _configs() -> dict[str, str]:
    from eos.searching.files import configs, purpose  # imports transformers, which takes seconds

    return {name: purpose(path) for name, path in configs().items()}


LISTS: dict[str, Callable[[], dict[str, str]]] = {
    "backbones": _backbones,
    "scorers": _scorers,
    "presets": _presets,
    "tasks": _tasks,
    "configs": _configs,
}
