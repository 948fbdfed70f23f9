"""Run `eos ls`: list everything that has a name."""

from rich.console import Console
from rich.table import Table

from eos.errors import ConfigError
from eos.evaluation.tasks import TASKS
from eos.methods.registry import METHODS, SCORERS
from eos.models.families import FAMILIES
from eos.searching.files import configs, purpose


def catalogue(what: str) -> dict[str, dict[str, str]]:
    """Describe everything that has a name, a line each."""
    scorers = {
        name: f"{(scorer.score.__doc__ or '').splitlines()[0]} Query rows: {scorer.rows}."
        for name, scorer in SCORERS.items()
    }
    everything = {
        "backbones": {name: f"decoder: {family.decoder}" for name, family in FAMILIES.items()},
        "scorers": scorers,
        "presets": {
            preset.name: f"{preset.what} [{method.paper}]"
            for method in METHODS.values()
            for preset in method.presets
        },
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
