"""Published benchmarks in `eos eval`: several tasks in one run, one table."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.commands.terminal import progress_bar, resumable
from eos.errors import ConfigError

if TYPE_CHECKING:
    from eos.evaluation.overall import Overall
    from eos.models import backbone as models


def named_benchmarks(
    tasks: str | None, data: Path | None, *, others: Mapping[str, object]
) -> list[str]:
    """Read the names of benchmarks and check their folders; none for another task.

    Args:
        tasks: as given; a name that is unknown is an error.
        data: folder of the benchmarks.
        others: options that benchmarks do not take, by name.
    """
    from eos.evaluation.benchmarks.registry import BENCHMARKS
    from eos.evaluation.suite import benchmark_names, check_folders
    from eos.evaluation.tasks import find_task

    if tasks is None:
        return []
    names = benchmark_names(tasks)
    if not names:
        find_task(tasks, others=BENCHMARKS)
        return []
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise ConfigError(f"expected no {' or '.join(given)} with benchmarks; found {tasks!r}")
    check_folders(names, data)
    return names


def benchmarks_watched(
    backbone: "models.Backbone", plans: list[str], *, out: Path, quiet: bool, **settings: Any
) -> "Overall":
    """Evaluate on benchmarks with a progress bar."""
    from eos.evaluation.suite import evaluate_benchmarks

    kept = f"all answers so far are kept in {out}"
    with resumable(kept), progress_bar("benchmarks", quiet=quiet) as update:

        def watch(name: str, done: int, total: int) -> None:
            update(done, total, label=name)

        return evaluate_benchmarks(backbone, plans, out=out, watch=watch, **settings)
