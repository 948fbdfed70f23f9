"""Keys of a search's configuration, for help texts; torch is not imported."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperCommand

FILE = Path(str(files("eos"))) / "configs" / "search-keys.json"  # made by eos.searching.keys


class SearchCommand(TyperCommand):
    """A command whose help ends with the keys of its configuration."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, then the keys."""
        super().format_help(ctx, formatter)
        table = Table.grid(padding=(0, 2))
        for entry in search_keys():
            table.add_row(*(escape(cell) for cell in cells(entry)))
        console = Console()
        console.print(" Keys of the configuration, with their defaults:\n")
        console.print(table)


def search_keys() -> list[dict[str, str]]:
    """Read the keys, each with its default, as typed, and what it means."""
    found: list[dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def cells(entry: dict[str, str]) -> tuple[str, str]:
    """Write a key with its default, and its meaning without the marks of docstrings."""
    default = f"={entry['default']}" if entry["default"] else ""
    return f"{entry['key']}{default}", entry["about"].replace("`", "")
