"""Samples: an image or more with a conversation about it, and the reasons for not using one."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from PIL import Image, UnidentifiedImageError

from eos.errors import DataError

Message: TypeAlias = dict[str, Any]


class UnusableError(DataError):
    """A sample that must be skipped.

    Attributes:
        kind: a few words by which such samples are counted.
    """

    def __init__(self, message: str, *, kind: str = "unusable sample") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Sample:
    """A conversation with its images.

    Attributes:
        id: name of the sample.
        messages: as chat templates read them, images inside, ending with an answer.
    """

    id: str
    messages: list[Message]


@dataclass(frozen=True)
class Skipped:
    """A sample that was not used, and why; or several, of which only the number is known."""

    id: str
    reason: str
    kind: str = "unusable sample"
    count: int = 1


@runtime_checkable
class Source(Protocol):
    """Numbered samples; the same number gives the same sample."""

    def __len__(self) -> int:
        """Count the samples, usable or not."""

    def describe(self) -> str:
        """Describe the source; a resumed run needs an equal description."""

    def name(self, index: int) -> str:
        """Name a sample without making it."""

    def sample(self, index: int) -> Sample:
        """Make a sample, or raise `UnusableError`."""


@dataclass(frozen=True)
class Subset:
    """Some samples of a source, renumbered."""

    source: Source
    indices: Sequence[int]
    label: str

    def __len__(self) -> int:
        return len(self.indices)

    def describe(self) -> str:
        """Describe the source."""
        return f"{self.label} of {self.source.describe()}"

    def name(self, index: int) -> str:
        """Name a sample."""
        return self.source.name(self.indices[index])

    def sample(self, index: int) -> Sample:
        """Make a sample, or raise `UnusableError`."""
        return self.source.sample(self.indices[index])


def load_image(found: object, *, where: str) -> Image.Image:
    """Decode an image to RGB: a path, bytes, a dictionary of either, or an image already."""
    if isinstance(found, dict):  # how datasets stores an undecoded image
        found = found.get("bytes") or found.get("path")
    try:
        if isinstance(found, Image.Image):
            return found.convert("RGB")
        if isinstance(found, bytes):
            return Image.open(BytesIO(found)).convert("RGB")
        if isinstance(found, (str, Path)):
            with Image.open(found) as image:
                return image.convert("RGB")
    except FileNotFoundError:
        raise UnusableError(
            f"{where}: expected an image, found no file {found}", kind="missing image"
        ) from None
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as failure:
        reason = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
        raise UnusableError(
            f"{where}: expected an image that decodes, found {reason}", kind="broken image"
        ) from None
    raise UnusableError(f"{where}: expected an image, found {type(found).__name__}")
