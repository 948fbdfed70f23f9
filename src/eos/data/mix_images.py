"""Mix images: which images of a mixture may be used: those that exist and are not evaluated on."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from eos.errors import DataError

SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp"}
# COCO's training images of 2017 are those of 2014 and most of its validation images, by number
_COCO = re.compile(r"COCO_(?:train|val|test)20\d\d_(\d{12})")
_GENERIC = re.compile(r"image|choice_\d+")  # file names in ScienceQA, a folder for each problem
MISSING, BY_NAME, BY_CONTENT = "missing", "evaluated on, by name", "evaluated on, by content"


def image_name(path: str) -> str:
    """Name an image wherever it lies: its file's name without suffix, COCO's as a number.

    >>> image_name("val2014/COCO_val2014_000000000042.jpg"), image_name("coco/000000000042.jpg")
    ('000000000042', '000000000042')
    >>> image_name("scienceqa/images/train/7/image.png")
    '7/image'
    """
    found = Path(path)
    coco = _COCO.fullmatch(found.stem)
    if coco:
        return coco[1]
    return f"{found.parent.name}/{found.stem}" if _GENERIC.fullmatch(found.stem) else found.stem


@dataclass
class EvaluationImages:
    """Images of evaluation sets.

    Attributes:
        names: as of `image_name`.
        files: those that are at hand, by size in bytes.
    """

    names: set[str] = field(default_factory=set)
    files: dict[int, list[Path]] = field(default_factory=dict)
    _digests: dict[int, set[bytes]] = field(default_factory=dict)

    def problem(self, path: Path) -> str | None:
        """Say why an image may not be used; None if it may."""
        try:
            size = path.stat().st_size
        except OSError:
            return MISSING
        if image_name(str(path)) in self.names:
            return BY_NAME
        if size not in self.files:
            return None
        if size not in self._digests:
            self._digests[size] = {_digest(file) for file in self.files[size]}
        return BY_CONTENT if _digest(path) in self._digests[size] else None


def read_evaluated(given: Iterable[Path]) -> EvaluationImages:
    """Collect the images of folders, by name and content, and of files that name images.

    Such a file is a list or lines of JSON objects with an ``image``, or of plain names.
    """
    found = EvaluationImages()
    for path in given:
        if not path.exists():
            raise DataError(f"expected a folder or file of evaluation images, found none at {path}")
        files = _images(path) if path.is_dir() else []
        names = [str(file) for file in files] if path.is_dir() else list(_named(path))
        if not names:
            raise DataError(f"expected images, or lines that name some, in {path}; found none")
        found.names.update(map(image_name, names))
        for file in files:
            found.files.setdefault(file.stat().st_size, []).append(file)
    return found


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def _named(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    try:
        entries = json.loads(text)
        entries = entries if isinstance(entries, list) else [entries]
    except ValueError:
        entries = [_line(line) for line in text.splitlines() if line.strip()]
    for entry in entries:
        name = entry.get("image") if isinstance(entry, dict) else entry
        if isinstance(name, str) and name:
            yield name


def _line(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line.strip()


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()
