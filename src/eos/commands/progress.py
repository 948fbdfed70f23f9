"""Progress: one bar on stderr for every verb that takes long."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Update(Protocol):
    """Sets the bar; ``label`` stands before it, ``note`` after it."""

    def __call__(
        self, done: float, total: float | None, *, label: str | None = None, note: str = ""
    ) -> None:
        """Draw it."""


@contextmanager
def progress_bar(label: str, *, quiet: bool) -> Iterator[Update]:
    """Show a bar inside the block."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        bar = progress.add_task(label, total=None, note="")

        def update(
            done: float, total: float | None, *, label: str | None = None, note: str = ""
        ) -> None:
            progress.update(bar, completed=done, total=total, description=label, note=note)

        yield update
