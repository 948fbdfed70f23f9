"""Running: make all pieces that are not done, one after the other, and say how far they are."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eos.evaluation.reproduction import PieceRecord, Programme
from eos.programme.pieces import Piece, is_done, read_record, record_path
from eos.programme.scope import Scope
from eos.programme.workshop import Facts, Workshop
from eos.runs.files import write_atomically
from eos.version import __version__


@dataclass(frozen=True)
class Underway:
    """A piece that is being made, and how far it is."""

    piece: Piece
    done: float = 0.0
    total: float = 0.0
    what: str = ""


@dataclass
class Course:
    """How far a programme is.

    Attributes:
        folder: of the programme.
        pieces: all of them, each after those that it needs.
        digests: of their inputs.
        jobs: pieces that are made at once, on all machines together.
        done: names of those that are made.
        underway: those that are being made here.
    """

    folder: Path
    pieces: Sequence[Piece]
    digests: Mapping[str, str]
    jobs: int = 1
    done: set[str] = field(default_factory=set)
    underway: dict[str, Underway] = field(default_factory=dict)

    def look(self) -> None:
        """Find what is made already."""
        for piece in self.pieces:
            if piece.name not in self.done and is_done(
                self.folder, piece, self.digests[piece.name]
            ):
                self.done.add(piece.name)

    def ready(self, piece: Piece) -> bool:
        """Whether a piece can be made now."""
        before = {*piece.needs, *piece.after}
        return piece.name not in self.done | set(self.underway) and before <= self.done

    def expected(self, piece: Piece) -> float:
        """Guess the seconds of a piece from its work, and from what others of its kind took."""
        known = {x.name: x for x in self.pieces}
        rates: dict[str, list[float]] = {}
        for name in self.done:
            record, own = read_record(self.folder, name), known[name]
            if record is not None and own.work > 1:
                rates.setdefault(own.kind, []).append(record.seconds / own.work)
        measured = rates.get(piece.kind) or [rate for found in rates.values() for rate in found]
        return piece.work * (sum(measured) / len(measured) if measured else 1.0)

    def left(self) -> float:
        """Guess the seconds until all is made."""
        total = 0.0
        for piece in self.pieces:
            if piece.name not in self.done:
                now = self.underway.get(piece.name)
                share = now.done / now.total if now is not None and now.total else 0.0
                total += self.expected(piece) * (1 - share)
        return total / self.jobs


Watcher = Callable[[Course], None]


def make_piece(
    workshop: Workshop, piece: Piece, *, progress: Callable[[float, float, str], None]
) -> PieceRecord:
    """Make one piece, and write its record when its file is complete."""
    started = time.monotonic()
    answers = piece.run(workshop, progress)
    record = PieceRecord(
        name=piece.name,
        kind=piece.kind,
        file=piece.file,
        inputs=workshop.digests[piece.name],
        seconds=round(time.monotonic() - started, 2),
        answers=answers or 0,
    )
    write_atomically(record_path(workshop.folder, piece.name), record.model_dump_json() + "\n")
    return record


def run_here(workshop: Workshop, course: Course, watch: Watcher) -> None:
    """Make the pieces that are not done, one after the other."""
    course.look()
    for piece in course.pieces:
        if piece.name in course.done:
            continue

        def progress(done: float, total: float, what: str, piece: Piece = piece) -> None:
            course.underway[piece.name] = Underway(piece, done, total, what)
            watch(course)

        progress(0, 0, "")
        make_piece(workshop, piece, progress=progress)
        course.underway.clear()
        course.done.add(piece.name)
        watch(course)


def write_programme(course: Course, scope: Scope, facts: Facts, *, command: str) -> Programme:
    """Write ``programme.json`` from the records of all pieces, those of earlier commands included.

    Studies that other commands made in the folder stay, as long as they are of the same model.
    """
    path = course.folder / "programme.json"
    read = [read_record(course.folder, piece.name) for piece in course.pieces]
    found = {record.name: record for record in read if record is not None}
    commands = [command]
    if path.exists():
        before = Programme.load(path)
        if before.fingerprint == facts.fingerprint:
            found = {record.name: record for record in before.pieces} | found
            commands = list(dict.fromkeys([*before.commands, command]))
    made = Programme(
        backbone=facts.backbone,
        fingerprint=facts.fingerprint,
        version=__version__,
        quick=scope.quick,
        environment=facts.environment,
        commands=tuple(commands),
        settings=scope.model_dump(mode="json"),
        pieces=tuple(found.values()),
    )
    made.save(path)
    return made
