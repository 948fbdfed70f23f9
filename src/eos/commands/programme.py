"""What `eos reproduce` and `eos ablate` share: the scope of their options, running, progress."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.commands.options import check_before_loading, split_arguments
from eos.commands.terminal import Update, clock, progress_bar
from eos.errors import ConfigError, StoppedError
from eos.tables import text_table

if TYPE_CHECKING:
    from eos.programme.running import Course, Watcher
    from eos.programme.scope import Scope
    from eos.programme.workshop import Facts


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
    from eos.programme.crew import crew, ranks
    from eos.programme.workshop import Workshop
    from eos.runs.lock import locked

    check_before_loading(out)
    rank, world = ranks()
    count = 1 if world > 1 else jobs or _default_jobs(scope)
    if dry_run:
        facts = Workshop(out, scope).facts
        show_pieces(_course(scope, facts, out, studies, jobs=count))
        return False
    try:
        with locked(out, main=rank == 0), programme_bar(quiet=quiet or rank > 0) as watch:
            if count == 1 and world == 1:
                _run_alone(scope, out, studies, watch)
            else:
                with crew(out, scope, jobs=count, studies=studies) as workers:
                    facts = workers.facts()
                    course = _course(scope, facts, out, studies, jobs=count * world)
                    workers.run(course, watch, share=(rank, world))
                    if rank == 0:
                        _finish(scope, facts, course, studies)
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; what is done is kept in {out}. Rerun the same command to resume"
        ) from None
    return rank == 0


def _run_alone(scope: "Scope", out: Path, studies: Sequence[str] | None, watch: "Watcher") -> None:
    from eos.programme.running import run_here
    from eos.programme.workshop import Workshop

    workshop = Workshop(out, scope)
    course = _course(scope, workshop.facts, out, studies, jobs=1)
    workshop.digests = dict(course.digests)
    run_here(workshop, course, watch)
    _finish(scope, workshop.facts, course, studies)


def _course(
    scope: "Scope", facts: "Facts", out: Path, studies: Sequence[str] | None, *, jobs: int
) -> "Course":
    from eos.programme.assembly import assemble
    from eos.programme.pieces import digests
    from eos.programme.running import Course

    pieces = assemble(scope, facts, studies=studies)
    return Course(out, pieces, digests(pieces, model=facts.fingerprint), jobs=jobs)


def _finish(
    scope: "Scope", facts: "Facts", course: "Course", studies: Sequence[str] | None
) -> None:
    from eos.programme.assembly import command_of
    from eos.programme.running import write_programme

    command = command_of(scope, studies[0] if studies else None)
    write_programme(course, scope, facts, command=command)


def _default_jobs(scope: "Scope") -> int:
    """One process for each processor if the model is small, and runs on the CPU."""
    import torch

    from eos.searching.files import read_config

    small = read_config(scope.config, scope.changes).backbone == "miniature"
    alone = torch.accelerator.is_available() or scope.device not in (None, "cpu")
    return os.cpu_count() or 1 if small and not alone else 1


@contextmanager
def programme_bar(*, quiet: bool) -> "Iterator[Watcher]":
    """Show what is made, what is done and how long is left."""
    with progress_bar("pieces", quiet=quiet) as update:
        yield lambda course: _draw(update, course)


def _draw(update: Update, course: "Course") -> None:
    notes = []
    for now in course.underway.values():
        far = f" {now.done:.0f}/{now.total:.0f}" if now.total else ""
        notes.append(f"{now.piece.name}{far}")
    update(len(course.done), len(course.pieces), left=course.left(), notes=notes)


def show_pieces(course: "Course") -> None:
    """Print every piece, whether it is done, and about how long it takes."""
    course.look()
    expected, kinds = course.expected(), dict[str, float]()
    rows = []
    for piece in course.pieces:
        seconds = expected.get(piece.name)
        rows.append([piece.name, piece.file, "done" if seconds is None else clock(seconds)])
        kinds[piece.kind] = kinds.get(piece.kind, 0.0) + (seconds or 0.0)
    print(text_table(["piece", "file", "time"], rows, left=2))
    print(", ".join(f"{kind} {clock(seconds)}" for kind, seconds in kinds.items()))
    print(
        f"{len(expected)} of {len(course.pieces)} pieces to make, about {clock(course.left())} "
        f"with {course.jobs} at once"
    )
