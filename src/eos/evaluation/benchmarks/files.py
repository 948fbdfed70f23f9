"""Files: read what benchmarks publish; entries that cannot be used are named, never dropped."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from eos.data.samples import Skipped, UnusableError
from eos.errors import DataError
from eos.evaluation.benchmarks.questions import LETTERS, ReadsImage, Row

BROKEN = "broken"  # the column of a row that could not be read
INCOMPLETE, TRUNCATED, UNKNOWN = "incomplete entry", "truncated line", "unknown option"


def text(row: Row, name: str) -> str:
    """Get a text or number that must be there, as text without blanks around it."""
    found = row.get(name)
    if not isinstance(found, (str, int, float)) or not str(found).strip():
        raise UnusableError(f"expected {name!r}, found {found!r:.60}", kind=INCOMPLETE)
    return str(found).strip()


def one_of(found: object, known: Sequence[str]) -> str:
    """Check that an answer is one of those there are, whatever its case."""
    by_case = {x.casefold(): x for x in known}
    if str(found).strip().casefold() not in by_case:
        expected = f"expected one of {', '.join(known)}, found {found!r:.60}"
        raise UnusableError(expected, kind=UNKNOWN)
    return by_case[str(found).strip().casefold()]


def letter(found: object, options: Sequence[str]) -> str:
    """Check the letter of an option, or make it of the option's number, counted from 0."""
    known = LETTERS[: len(options)]
    numbers = {str(place): x for place, x in enumerate(known)}
    return numbers.get(str(found).strip()) or one_of(found, known)


def load(path: Path) -> Any:
    """Read a JSON file; one that ends early or is no JSON is an error that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise DataError(f"cannot read {path}: {failure.strerror}") from None
    except ValueError as failure:
        raise DataError(
            f"expected a whole JSON file, found {path}: {failure}. If it is truncated, download it "
            "again"
        ) from None


def lines(path: Path | None) -> Iterator[Row]:
    """Read JSON lines; one that is no JSON object becomes a row that says so."""
    if path is None:
        return
    with path.open(encoding="utf-8") as found:
        for number, line in enumerate(found, start=1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if isinstance(row, dict):
                yield row
            else:
                yield broken(path, number, f"expected a JSON object, found {line.strip()[:60]!r}")


def tsv(path: Path) -> Iterator[Row]:
    """Read tab-separated values; a row that ends early becomes one that says so."""
    csv.field_size_limit(sys.maxsize)  # images are columns
    with path.open(encoding="utf-8", newline="") as found:
        for number, row in enumerate(csv.DictReader(found, delimiter="\t"), start=2):
            short = None in row.values()
            yield broken(path, number, f"expected {len(row)} columns") if short else row


def broken(path: Path, number: int, reason: str) -> Row:
    """Make a row of a line that cannot be read."""
    return {BROKEN: Skipped(f"{path.name}, line {number}", reason, TRUNCATED)}


def find(folder: Path, *patterns: str) -> Path | None:
    """Find the first file or folder that matches one of the patterns."""
    return next((path for x in patterns for path in sorted(folder.glob(x))), None)


def need(folder: Path, *patterns: str) -> Path:
    """Find the first file or folder that matches, or say what was expected."""
    found = find(folder, *patterns)
    if found is None:
        raise DataError(f"expected {' or '.join(patterns)} in {folder}, found none")
    return found


def image(folders: Iterable[Path], name: object) -> ReadsImage:
    """Read an image from the first of the folders that has it."""
    return first([folder / str(name) for folder in folders]).read_bytes


def first(paths: Sequence[Path]) -> Path:
    """Find the first file that is there, or give the first, so that an error names it."""
    return next((path for path in paths if path.is_file()), paths[0])
