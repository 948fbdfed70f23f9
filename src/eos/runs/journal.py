"""Journal: a file of JSON lines that is appended to, and read again when a run resumes.

A process killed at any moment leaves at most one torn line at the end; it is dropped.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eos.errors import ConfigError, DataError
from eos.runs.files import write_atomically


@dataclass
class Journal:
    """A file of lines, one JSON object each.

    Attributes:
        path: of the file.
        lines: added, but not written yet.
    """

    path: Path
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Add a JSON object, already serialised; it is written by the next `flush`."""
        self.lines.append(line + "\n")

    def append(self, turn: int, entry: Mapping[str, Any]) -> None:
        """Add an object that belongs to a numbered turn, so that `rewind` can drop it."""
        self.add(json.dumps({"turn": turn, **entry}, allow_nan=False))

    def flush(self) -> None:
        """Write what was added, through to the disk."""
        if not self.lines:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write("".join(self.lines).encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as failure:
            raise ConfigError(
                f"cannot write {self.path}: {failure.strerror}; earlier lines are unchanged: rerun "
                "to resume"
            ) from None
        self.lines.clear()

    def whole_lines(self) -> list[bytes]:
        """Read the lines on the disk without a torn last one; the file is not changed."""
        data = self.path.read_bytes() if self.path.exists() else b""
        return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)

    def cut(self) -> list[bytes]:
        """Cut a torn last line off the file, and read the others."""
        lines = self.whole_lines()
        size = sum(map(len, lines))
        if self.path.exists() and self.path.stat().st_size > size:
            with self.path.open("r+b") as file:
                file.truncate(size)
        return lines

    def entries(self) -> Iterator[dict[str, Any]]:
        """Read the objects on the disk."""
        for number, line in enumerate(self.whole_lines(), start=1):
            entry = _parsed(line)
            if entry is None:
                raise DataError(
                    f"{self.path}, line {number}: expected a JSON object, found {line[:60]!r}. "
                    "Delete the line, or use another folder"
                )
            yield entry

    def rewind(self, done: int) -> list[int]:
        """Drop lines that are torn or of turns not ``done``; give the turns of the others."""
        data = self.path.read_bytes() if self.path.exists() else b""
        kept, turns = [], []
        for line in self.whole_lines():
            turn = (_parsed(line) or {}).get("turn")
            if isinstance(turn, int) and 0 <= turn < done:
                kept.append(line)
                turns.append(turn)
        if b"".join(kept) != data:
            write_atomically(self.path, b"".join(kept))
        return turns


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
