"""Run `eos eval`: evaluate, show, save."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from eos.errors import EosError
from eos.evaluation.evaluate import evaluate
from eos.evaluation.results import Results
from eos.report.evaluation import markdown, show_evaluation
from eos.runs.files import write_atomically

WIDTH = 150  # of tables that go to a file


def evaluate_and_show(
    *,
    backbone: str,
    plans: list[str],
    task: str,
    split: str,
    limit: int,
    seed: int,
    out: Path,
    batch_size: int,
    blank: bool,
    document: Path | None,
    as_json: bool,
) -> None:
    """Evaluate with a progress bar; print tables or JSON; write Markdown to ``document``."""
    results = evaluate_watched(
        backbone,
        plans,
        out=out,
        task=task,
        split=split,
        limit=limit,
        seed=seed,
        batch_size=batch_size,
        blank=blank,
    )
    print(f"saved {out / 'results.json'}", file=sys.stderr)
    if document is not None:
        write_atomically(document, markdown(results))
        print(f"saved {document}", file=sys.stderr)
    if as_json:
        print(results.to_json(), end="")
    else:
        show_evaluation(results, width=None if sys.stdout.isatty() else WIDTH)


def evaluate_watched(backbone: str, plans: list[str], *, out: Path, **settings: Any) -> Results:
    """Evaluate with a progress bar; Ctrl-C says what is kept and how to go on."""
    columns = (
        TextColumn("answers"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    done = [0, 0]
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("answers", total=None)

            def watch(count: int, total: int) -> None:
                done[:] = count, total
                progress.update(bar, completed=count, total=total)

            return evaluate(backbone, plans, out=out, watch=watch, **settings)
    except KeyboardInterrupt:
        raise EosError(
            f"stopped; {done[0]} of {done[1]} answers are kept in {out}. The same command goes on "
            "from there"
        ) from None
