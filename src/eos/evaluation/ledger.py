"""Ledger: predictions.jsonl, one line a run and question, appended to while a model answers.

Of several processes the first appends to it, and each other one to a part of its own beside it;
`arrange` makes them one file. A process that is killed at any moment leaves at most one torn line,
which is dropped when the file is opened again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from eos.config import Frozen, describe
from eos.errors import DataError
from eos.runs.files import write_atomically
from eos.runs.journal import Journal


class Prediction(Frozen):
    """What one run answered to one question, and its score in [0, 1].

    Files of earlier versions hold one ``answer``, and ``correct`` instead of a score.
    """

    run: str
    id: str
    family: str
    number: int
    prediction: str
    answers: tuple[str, ...]
    score: float = Field(ge=0, le=1)
    chance: float | None

    @model_validator(mode="before")
    @classmethod
    def _read_earlier(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "correct" not in data:
            return data
        kept = {name: value for name, value in data.items() if name not in ("answer", "correct")}
        return {**kept, "answers": [data.get("answer")], "score": data["correct"]}


class Ledger:
    """All predictions in a file and its parts; the process of ``rank`` appends to one of them.

    Attributes:
        path: of the file.
        known: by run and family, then by the question's number.
    """

    def __init__(self, path: Path, *, rank: int = 0) -> None:
        self.path = path
        self.known: dict[tuple[str, str], dict[int, Prediction]] = {}
        self._journal = Journal(_part(path, rank) if rank else path)
        self._journal.cut()
        self._read: dict[Path, int] = {}  # bytes of each file
        self.refresh()

    def append(self, predictions: Sequence[Prediction]) -> None:
        """Add predictions that are not known yet, to the file first."""
        new = [p for p in predictions if p.number not in self.of(p.run, p.family)]
        for prediction in new:
            self._journal.add(prediction.model_dump_json())
        self._journal.flush()
        for prediction in new:
            self._learn(prediction)
        if new:
            self._read[self._journal.path] = self._journal.path.stat().st_size

    def refresh(self) -> None:
        """Learn the predictions that were added to the file and its parts, by other processes."""
        for path in [*([self.path] if self.path.exists() else []), *self._parts()]:
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            for line in data.splitlines():
                self._learn(_parsed(line, path))
            self._read[path] = start + len(data)

    def of(self, run: str, family: str) -> Mapping[int, Prediction]:
        """Give a run's predictions of a family, by the question's number."""
        return self.known.get((run, family), {})

    def arrange(self, runs: Sequence[str], families: Sequence[str]) -> None:
        """Make one file of all parts, in order: by run, family and question's number."""
        found = [self.of(run, family) for run in runs for family in families]
        ordered = [own[number] for own in found for number in sorted(own)]
        text = "".join(prediction.model_dump_json() + "\n" for prediction in ordered)
        if not self.path.exists() or self.path.read_bytes() != text.encode("utf-8"):
            write_atomically(self.path, text)
        for part in self._parts():
            part.unlink()

    def _parts(self) -> list[Path]:
        return sorted(self.path.parent.glob(_part(self.path, "*").name))

    def _learn(self, prediction: Prediction) -> None:
        own = self.known.setdefault((prediction.run, prediction.family), {})
        own.setdefault(prediction.number, prediction)


def _part(path: Path, rank: int | str) -> Path:
    return path.with_name(f"{path.stem}-{rank}{path.suffix}")


def _parsed(line: bytes, path: Path) -> Prediction:
    try:
        return Prediction.model_validate_json(line)
    except ValidationError as failure:
        number = path.read_bytes().splitlines().index(line) + 1
        raise DataError(
            f"{path}, line {number}: expected a prediction, found {line[:60]!r}: "
            f"{describe(failure, Prediction)}. Delete the line and rerun to answer it again"
        ) from None
