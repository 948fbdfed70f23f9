"""Pieces: what a programme consists of. Each makes one file from stated inputs, and is made once.

A piece's digest is of its own settings, of the model, and of the digests of the pieces it needs: it
says what the file holds without reading it. A record of the digest is written when the file is
complete, so that a killed programme resumes, and a changed input makes again what follows from it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from eos.errors import ConfigError
from eos.evaluation.reproduction import PieceRecord

REVISION = 1  # raised when equal settings give other results than before
RECORDS = "pieces"  # folder of the records
DIGITS = 16  # of a digest
OnProgress: TypeAlias = Callable[[float, float], None]  # done, total


@dataclass(frozen=True)
class Piece:
    """One file, and how it is made.

    Attributes:
        name: such as ``search/eos-1``.
        kind: how long it takes is estimated from others of its kind.
        file: that it makes, relative to the programme's folder.
        settings: everything that its content follows from, besides the model and ``needs``.
        needs: names of pieces whose files it reads.
        after: names of pieces that write to the same folder, and so go first.
        run: makes the file; called with a `Context` and a `OnProgress`.
        work: seconds that it takes on some machine, estimated; their ratios count.
    """

    name: str
    kind: str
    file: str
    run: Callable[..., int | None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    work: float = 1.0


def digest_of(value: Any) -> str:
    """Hash plain data.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:DIGITS]


def digests(pieces: Iterable[Piece], *, model: str) -> dict[str, str]:
    """Hash the inputs of every piece, by name; pieces stand after those that they need.

    Args:
        pieces: in order.
        model: fingerprint of the backbone.
    """
    found: dict[str, str] = {}
    for piece in pieces:
        unknown = [name for name in (*piece.needs, *piece.after) if name not in found]
        if unknown:
            raise ConfigError(f"expected {', '.join(unknown)} before {piece.name}, found none")
        found[piece.name] = digest_of(
            {
                "revision": REVISION,
                "model": model,
                "kind": piece.kind,
                "settings": dict(piece.settings),
                "needs": [found[name] for name in piece.needs],
            }
        )
    return found


def with_needs(pieces: Sequence[Piece], names: Iterable[str]) -> list[Piece]:
    """Choose pieces by name, and those that they need, in order."""
    by_name = {piece.name: piece for piece in pieces}
    chosen: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in chosen:
            chosen.add(name)
            pending += by_name[name].needs
    return [piece for piece in pieces if piece.name in chosen]


def record_path(folder: Path, name: str) -> Path:
    """Say where the record of a piece is."""
    return folder / RECORDS / f"{name}.json"


def read_record(folder: Path, name: str) -> PieceRecord | None:
    """Read the record of a piece; None if it was never finished."""
    path = record_path(folder, name)
    if not path.exists():
        return None
    return PieceRecord.model_validate_json(path.read_text(encoding="utf-8"))


def is_done(folder: Path, piece: Piece, digest: str) -> bool:
    """Whether a piece's file is there, made from the inputs that it has now."""
    record = read_record(folder, piece.name)
    made = record is not None and record.inputs == digest and record.file == piece.file
    return made and (folder / piece.file).exists()
