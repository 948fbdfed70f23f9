"""Running: how far a programme is, and making the pieces that are not done in this process."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from eos.evaluation.reproduction import PieceRecord, Programme
from eos.programme.assembly import assemble, command_of
from eos.programme.context import Context
from eos.programme.pieces import OnProgress, Piece, digests, is_done, read_record, record_path
from eos.runs.files import write_atomically
from eos.version import __version__


@dataclass
class ProgrammeProgress:
    """How far a programme is.

    Attributes:
        folder: of the programme.
        pieces: all of them, each after those that it needs.
        digests: of their inputs.
        jobs: pieces that are made at once, on all machines together.
        done: seconds that each finished piece took, by name.
        running: how far each piece is that is being made here, done and total, by name.
    """

    folder: Path
    pieces: Sequence[Piece]
    digests: Mapping[str, str]
    jobs: int = 1
    done: dict[str, float] = field(default_factory=dict)
    running: dict[str, tuple[float, float]] = field(default_factory=dict)

    def find_done(self) -> None:
        """Find the pieces that are made already, also by other processes."""
        for piece in self.pieces:
            known = piece.name in self.done
            if not known and is_done(self.folder, piece, self.digests[piece.name]):
                self.finish(piece)

    def finish(self, piece: Piece) -> None:
        """Note that a piece is made."""
        record = read_record(self.folder, piece.name)
        self.done[piece.name] = 0.0 if record is None else record.seconds
        self.running.pop(piece.name, None)

    def ready(self, piece: Piece) -> bool:
        """Whether a piece can be made now."""
        idle = piece.name not in self.done and piece.name not in self.running
        return idle and {*piece.needs, *piece.after} <= set(self.done)

    def expected_seconds(self) -> dict[str, float]:
        """Estimate the seconds of each piece that is not done from what others of its kind took."""
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

    def seconds_left(self) -> float:
        """Estimate the seconds until all is made."""
        left = 0.0
        for name, seconds in self.expected_seconds().items():
            done, total = self.running.get(name, (0.0, 0.0))
            left += seconds * (1 - (done / total if total else 0.0))
        return left / self.jobs


Watcher = Callable[[ProgrammeProgress], None]


def start_progress(
    context: Context, *, studies: Sequence[str] | None, jobs: int = 1
) -> ProgrammeProgress:
    """List the pieces of a programme, or of some studies, and give the context their digests."""
    pieces = assemble(context.scope, context.info, studies=studies)
    context.digests = digests(pieces, model=context.info.fingerprint)
    return ProgrammeProgress(context.folder, pieces, context.digests, jobs=jobs)


def make_piece(context: Context, piece: Piece, on_progress: OnProgress) -> None:
    """Make one piece, and write its record when its file is complete."""
    started = time.monotonic()
    answers = piece.run(context, on_progress)
    record = PieceRecord(
        name=piece.name,
        kind=piece.kind,
        file=piece.file,
        inputs=context.digests[piece.name],
        seconds=round(time.monotonic() - started, 2),
        answers=answers or 0,
    )
    write_atomically(record_path(context.folder, piece.name), record.model_dump_json() + "\n")


def run_here(context: Context, progress: ProgrammeProgress, watch: Watcher) -> None:
    """Make the pieces that are not done, one after the other."""
    progress.find_done()
    for piece in progress.pieces:
        if piece.name in progress.done:
            continue

        def on_progress(done: float, total: float, name: str = piece.name) -> None:
            progress.running[name] = (done, total)
            watch(progress)

        on_progress(0, 0)
        make_piece(context, piece, on_progress)
        progress.finish(piece)
        watch(progress)


def write_programme(
    context: Context, progress: ProgrammeProgress, studies: Sequence[str] | None
) -> None:
    """Write ``programme.json`` from the records of all pieces, those of earlier commands included.

    Studies that other commands made in the folder stay, as long as they are of the same model.
    """
    path, info, scope = context.folder / "programme.json", context.info, context.scope
    read = [read_record(context.folder, piece.name) for piece in progress.pieces]
    found = {record.name: record for record in read if record is not None}
    commands = [command_of(scope, studies[0] if studies else None)]
    if path.exists():
        before = Programme.load(path)
        if before.fingerprint == info.fingerprint:
            found = {record.name: record for record in before.pieces} | found
            commands = list(dict.fromkeys([*before.commands, *commands]))
    Programme(
        backbone=info.backbone,
        fingerprint=info.fingerprint,
        version=__version__,
        quick=scope.quick,
        environment=info.environment,
        commands=tuple(commands),
        settings=scope.model_dump(mode="json"),
        pieces=tuple(found.values()),
    ).save(path)
