"""Running: make all pieces that are not done, one after the other, and say how far they are."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

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
        done: seconds that those took which are made, by name.
        underway: those that are being made here.
    """

    folder: Path
    pieces: Sequence[Piece]
    digests: Mapping[str, str]
    jobs: int = 1
    done: dict[str, float] = field(default_factory=dict)
    underway: dict[str, Underway] = field(default_factory=dict)

    def look(self) -> None:
        """Find what is made already."""
        for piece in self.pieces:
            if piece.name not in self.done and is_done(
                self.folder, piece, self.digests[piece.name]
            ):
                self.finish(piece)

    def finish(self, piece: Piece) -> None:
        """Note that a piece is made."""
        record = read_record(self.folder, piece.name)
        self.done[piece.name] = 0.0 if record is None else record.seconds
        self.underway.pop(piece.name, None)

    def ready(self, piece: Piece) -> bool:
        """Whether a piece can be made now."""
        idle = piece.name not in self.done and piece.name not in self.underway
        return idle and {*piece.needs, *piece.after} <= set(self.done)

    def expected(self) -> dict[str, float]:
        """Guess the seconds of each piece that is not done, from what others of its kind took."""
        rates: dict[str, list[float]] = {}
        for piece in self.pieces:
            if piece.name in self.done and piece.work > 1:
                rates.setdefault(piece.kind, []).append(self.done[piece.name] / piece.work)
        means = {kind: fmean(found) for kind, found in rates.items()}
        other = fmean(means.values()) if means else 1.0
        return {
            piece.name: piece.work * means.get(piece.kind, other)
            for piece in self.pieces
            if piece.name not in self.done
        }

    def left(self) -> float:
        """Guess the seconds until all is made."""
        total = 0.0
        for name, seconds in self.expected().items():
            now = self.underway.get(name)
            share = now.done / now.total if now is not None and now.total else 0.0
            total += seconds * (1 - share)
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
        course.finish(piece)
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
