"""Terminal: the line of progress on stderr, results on stdout, and what Ctrl-C leaves.

How far it is and the time left come first; what does not fit the terminal is left out whole.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from eos.errors import StoppedError

if TYPE_CHECKING:
    from eos.config import Artifact

WIDTH = 150  # of tables that go to a file
GAP = "  "  # between the parts of a line
BAR, WITH_BAR = 20, 100  # columns of the bar, and of a terminal that has one


@dataclass(frozen=True)
class ProgressLine:
    """A line of progress, set by calling it."""

    progress: Progress
    task: TaskID

    def __call__(
        self,
        done: float,
        total: float | None,
        *,
        label: str | None = None,
        left: float | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """Set the line; ``label`` stands at its begin, the ``notes`` after the time left.

        ``left`` is that time in seconds, if it is known better than from what is done so far.
        """
        self.progress.update(
            self.task, completed=done, total=total, description=label, left=left, notes=notes
        )


class StatusColumn(ProgressColumn):
    """Label, step of total, time left, notes and time so far, as many as fit."""

    def __init__(self, console: Console, *, spare: int = 0) -> None:
        super().__init__()
        self.console, self.spare = console, spare

    def render(self, task: Task) -> Text:
        """Write the line."""
        total = "?" if task.total is None else f"{task.total:.0f}"
        parts = [task.description, f"{task.completed:.0f}/{total}"]
        left = task.fields.get("left")
        parts.append(f"left {clock(task.time_remaining if left is None else left)}")
        parts += [*task.fields["notes"], f"so far {clock(task.elapsed)}"]
        return Text(fitted(parts, self.console.width - self.spare), no_wrap=True)


def clock(seconds: float | None) -> str:
    """Write a duration.

    >>> clock(3725.2), clock(None)
    ('1:02:05', '-:--:--')
    """
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def fitted(parts: Sequence[str], width: int) -> str:
    """Join the first parts that fit, none of them cut.

    >>> fitted(["step 3/9", "loss 0.5", "layers 2"], 20)
    'step 3/9  loss 0.5'
    """
    count = len(parts)
    while count > 1 and cell_len(GAP.join(parts[:count])) > width:
        count -= 1
    return GAP.join(parts[:count])


def columns(console: Console) -> list[ProgressColumn]:
    """Choose what a terminal shows: a bar only where it is wide."""
    if console.width < WITH_BAR:
        return [StatusColumn(console)]
    return [StatusColumn(console, spare=BAR + 1), BarColumn(bar_width=BAR)]


@contextmanager
def progress_bar(
    label: str, *, quiet: bool, console: Console | None = None
) -> Iterator[ProgressLine]:
    """Show progress inside the block."""
    console = console or Console(stderr=True)
    with Progress(*columns(console), console=console, transient=True, disable=quiet) as progress:
        yield ProgressLine(progress, progress.add_task(label, total=None, left=None, notes=()))


@contextmanager
def resumable(kept: str) -> Iterator[None]:
    """Turn Ctrl-C inside the block into an error that says what is kept and how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; {kept}. Rerun the same command to resume") from None


def table_width(in_file: int = WIDTH) -> int | None:
    """Give the width of tables: the terminal's own, None, or ``in_file`` if there is none."""
    return None if sys.stdout.isatty() else in_file


def show_result(
    found: "Artifact", show: Callable[..., Any], *, as_json: bool, width: int = WIDTH
) -> None:
    """Print a result as JSON, or by ``show`` in tables; those of a file have ``width`` columns."""
    if as_json:
        print(found.to_json(), end="")
    else:
        show(found, width=table_width(width))
