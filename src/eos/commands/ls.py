"""`eos ls`: list everything that has a name."""

import json
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from eos.commands.options import AsJson, Listing


def list_things(
    what: Annotated[Listing, typer.Argument(help="Which names.")] = Listing.all,
    as_json: AsJson = False,
) -> None:
    """List what there is to name: backbones, scorers, presets, tasks, configs, tables."""
    chosen = LISTS if what is Listing.all else {what.value: LISTS[what.value]}
    found = {name: entries() for name, entries in chosen.items()}
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for title, entries in found.items():
        table = Table(title=title, title_justify="left", show_header=False)
        for name, description in entries.items():
            table.add_row(name, description.replace("[", "\\["))
        table.caption, table.caption_justify = CAPTIONS.get(title), "left"
        Console().print(table)


CAPTIONS = {
    "presets": "Layers and counts as published, for 32 layers and 576 tokens. With L layers, layer "
    "l becomes l·L/32, rounded; counts keep their share."
}


def _backbones() -> dict[str, str]:
    from eos.models.families import FAMILIES

    return {name: f"decoder: {family.decoder}" for name, family in FAMILIES.items()}


def _scorers() -> dict[str, str]:
    from eos.methods.registry import SCORERS

    return {
        name: f"{(scorer.score.__doc__ or '').splitlines()[0]} Query rows: {scorer.rows}."
        for name, scorer in SCORERS.items()
    }


def _presets() -> dict[str, str]:
    from eos.methods.registry import METHODS

    found = [(method.paper, preset) for method in METHODS.values() for preset in method.presets]
    return {preset.name: f"{preset.what} [{paper}]" for paper, preset in found}


def _tasks() -> dict[str, str]:
    from eos.evaluation.benchmarks.registry import BENCHMARKS
    from eos.evaluation.tasks import TASKS

    own = {
        name: f"{task.what} Families: {', '.join(task.families)}." for name, task in TASKS.items()
    }
    published = {
        name: f"{x.title}: {x.what} {x.size} questions. [{x.paper}]"
        for name, x in BENCHMARKS.items()
    }
    return {**own, **published}


def _configs() -> dict[str, str]:
    from eos.searching.files import configs, purpose

    return {name: purpose(path) for name, path in configs().items()}


def _tables() -> dict[str, str]:
    from eos.evaluation.paper_tables import paper_tables
    from eos.searching.files import purpose

    return {name: purpose(path) for name, path in paper_tables().items()}


LISTS: dict[str, Callable[[], dict[str, str]]] = {
    "backbones": _backbones,
    "scorers": _scorers,
    "presets": _presets,
    "tasks": _tasks,
    "configs": _configs,
    "tables": _tables,
}
