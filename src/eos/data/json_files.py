"""JSON files: as a whole with a digest, or arrays larger than memory entry by entry."""

import codecs
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from eos.errors import DataError

CHUNK = 1 << 20  # bytes read at once
LONGEST = 1 << 26  # characters of an entry; what does not parse before that is refused
BLANKS = re.compile(r"[ \t\r\n]*")
BytesWatch: TypeAlias = Callable[[int], None]


def read_json(path: Path) -> tuple[Any, str]:
    """Read a whole file, and give the sha256 of its bytes, too."""
    try:
        data = path.read_bytes()
        return json.loads(data), hashlib.sha256(data).hexdigest()
    except OSError as failure:
        raise DataError(f"cannot read {path}: {failure.strerror}") from None
    except ValueError as failure:
        raise DataError(f"{path} is not JSON: {failure}") from None


class Place(NamedTuple):
    """Where an entry is: its first byte, and how many there are."""

    offset: int
    length: int

    def read(self, file: BinaryIO) -> Any:
        """Read the entry again."""
        file.seek(self.offset)
        return json.loads(file.read(self.length))


class ArrayFile:
    """A file with one JSON array.

    Attributes:
        path: of the file.
        digest: of its bytes, sha256, once `entries` has come to the end.
        count: of the entries read.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.digest, self.count = path, "", 0

    def entries(self, watch: BytesWatch | None = None) -> Iterator[tuple[Place, Any]]:
        """Read entry by entry; ``watch`` is called with the number of bytes read."""
        try:
            with self.path.open("rb") as file:
                yield from self._entries(_Text(file, watch))
        except OSError as failure:
            raise DataError(f"cannot read {self.path}: {failure.strerror}") from None
        except UnicodeDecodeError as failure:
            raise DataError(
                f"{self.path}: expected UTF-8 after {self.count} entries, found {failure.reason}"
            ) from None

    def _entries(self, text: "_Text") -> Iterator[tuple[Place, Any]]:
        self.count = 0
        if text.next() != "[":
            raise self._error(text, "a list")
        text.take(text.at + 1)
        while text.next() != "]":
            if self.count:
                if text.next() != ",":
                    raise self._error(text, "a comma or the list's end")
                text.take(text.at + 1)
                text.next()
            value, end = self._decoded(text)
            yield Place(text.offset, text.take(end)), value
            self.count += 1
        text.take(text.at + 1)
        if text.next():
            raise self._error(text, "nothing after the list")
        self.digest = text.digest.hexdigest()

    def _decoded(self, text: "_Text") -> tuple[Any, int]:
        """Parse the entry that comes next, and say where it ends in what is held."""
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(text.held, text.at)
            except ValueError:
                if len(text.held) - text.at > LONGEST or not text.more():
                    raise self._error(text, "an entry") from None
                continue
            # a number may go on in what is not read yet
            if end < len(text.held) or not text.more():
                return value, end

    def _error(self, text: "_Text", expected: str) -> DataError:
        found = repr(text.held[text.at : text.at + 40]) if text.next() else "the end of the file"
        return DataError(
            f"{self.path}: expected {expected} after {self.count} entries, at byte {text.offset}; "
            f"found {found}. The file is truncated or damaged: get it again"
        )


class _Text:
    """The part of a file that is held, as text.

    Attributes:
        held: the text.
        at: place of the next character in it.
        offset: byte of that character in the file.
    """

    def __init__(self, file: BinaryIO, watch: BytesWatch | None) -> None:
        self.file, self.watch, self.digest = file, watch, hashlib.sha256()
        self.held, self.at, self.offset = "", 0, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def more(self) -> bool:
        """Read on, at least as much as is left, so that long entries are not parsed too often."""
        rest = self.held[self.at :]
        data = self.file.read(max(CHUNK, len(rest)))
        self.digest.update(data)
        if self.watch is not None:
            self.watch(self.file.tell())
        self.held, self.at = rest + self._decoder.decode(data), 0
        return bool(data)

    def next(self) -> str:
        """Pass over blanks, and give the next character; "" at the file's end."""
        while True:
            found = BLANKS.match(self.held, self.at)
            self.take(found.end() if found else self.at)
            if self.at < len(self.held) or not self.more():
                return self.held[self.at : self.at + 1]

    def take(self, end: int) -> int:
        """Pass over the characters up to a place; give the number of their bytes."""
        part = self.held[self.at : end]
        size = len(part) if part.isascii() else len(part.encode("utf-8"))
        self.at, self.offset = end, self.offset + size
        return size
