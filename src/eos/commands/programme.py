"""What `eos reproduce` and `eos ablate` share: the scope of their options, running, progress."""

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.commands.options import check_before_loading, split_arguments
from eos.commands.terminal import ProgressLine, clock, progress_bar, resumable
from eos.errors import ConfigError
from eos.tables import text_table

if TYPE_CHECKING:
    from eos.programme.running import ProgrammeProgress
    from eos.programme.scope import Scope


def scope_of(
    arguments: list[str] | None,
    given: Mapping[str, Any],
    *,
    quick: bool = False,
    budgets: str | None = None,
) -> "Scope":
    """Make the scope of a verb's arguments and options; those not given keep their defaults."""
    from eos.programme.scope import QUICK_BUDGETS, QUICK_LIMIT, Scope

    source, changes = split_arguments(arguments)
    named = {"config": source, "changes": changes, **given}
    chosen = {
        key: value.value if isinstance(value, Enum) else value
        for key, value in named.items()
        if value is not None
    }
    default: dict[str, Any] = {}
    if quick:
        default = {"limit": QUICK_LIMIT, "budgets": QUICK_BUDGETS, "seeds": (1,)}
    if budgets is not None:
        default["budgets"] = _numbers(budgets)
    if "budgets" in default:
        known = Scope().sweep
        default["sweep"] = [x for x in known if x in default["budgets"]]
        default["sweep"] = default["sweep"] or list(default["budgets"])[-1:]
    return Scope(**{**default, **chosen, "quick": quick})


def _numbers(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")}, reverse=True)
    except ValueError:
        raise ConfigError(f"expected budgets such as 192,64,16; found {text!r}") from None


def run_programme(
    scope: "Scope",
    out: Path,
    *,
    jobs: int | None,
    studies: Sequence[str] | None = None,
    dry_run: bool = False,
    quiet: bool = False,
) -> bool:
    """Make all pieces, or list them; whether this process is to show what came out."""
    from eos.programme.context import Context
    from eos.programme.pool import rank_and_world, worker_pool
    from eos.programme.running import run_here, start_progress, write_programme
    from eos.runs.lock import locked

    check_before_loading(out)
    rank, world = rank_and_world()
    count = 1 if world > 1 else jobs or _default_jobs(scope)
    context = Context(out, scope)
    if dry_run:
        show_pieces(start_progress(context, studies=studies, jobs=count))
        return False
    bar = progress_bar("pieces", quiet=quiet or rank > 0)
    with resumable(f"what is done is kept in {out}"), locked(out, main=rank == 0), bar as update:
        watch = partial(_draw, update)
        if count == 1 and world == 1:
            progress = start_progress(context, studies=studies)
            run_here(context, progress, watch)
        else:
            with worker_pool(context, jobs=count, studies=studies) as pool:
                context.info = pool.model_info()
                progress = start_progress(context, studies=studies, jobs=count * world)
                pool.run(progress, watch, rank=rank, world=world)
        if rank == 0:
            write_programme(context, progress, studies)
    return rank == 0


def _default_jobs(scope: "Scope") -> int:
    """One process for each processor if the model is small, and runs on the CPU."""
    import torch

    from eos.searching.files import read_config

    small = read_config(scope.config, scope.changes).backbone == "miniature"
    alone = torch.accelerator.is_available() or scope.device not in (None, "cpu")
    return os.cpu_count() or 1 if small and not alone else 1


def _draw(update: ProgressLine, progress: "ProgrammeProgress") -> None:
    """Show the pieces that are being made, how many are done and how long is left."""
    notes = [
        f"{name} {done:.0f}/{total:.0f}" if total else name
        for name, (done, total) in progress.running.items()
    ]
    update(len(progress.done), len(progress.pieces), left=progress.seconds_left(), notes=notes)


def show_pieces(progress: "ProgrammeProgress") -> None:
    """Print every piece, whether it is done, and about how long it takes."""
    progress.find_done()
    expected, kinds = progress.expected_seconds(), dict[str, float]()
    rows = []
    for piece in progress.pieces:
        seconds = expected.get(piece.name)
        rows.append([piece.name, piece.file, "done" if seconds is None else clock(seconds)])
        kinds[piece.kind] = kinds.get(piece.kind, 0.0) + (seconds or 0.0)
    print(text_table(["piece", "file", "time"], rows, left=2))
    print(", ".join(f"{kind} {clock(seconds)}" for kind, seconds in kinds.items()))
    missing, left = f"{len(expected)} of {len(progress.pieces)}", clock(progress.seconds_left())
    print(f"{missing} pieces to make, about {left} with {progress.jobs} at once")
