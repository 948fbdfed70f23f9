"""Mix files: read LLaVA-mix-665K and ScienceQA, choose, and write the mixture with its manifest.

The large file is read twice: once in order, to note where the samples of each source are, then only
the chosen ones by their place. No more than those are held.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

from pydantic import Field

from eos.config import Artifact, Frozen
from eos.data.json_files import ArrayFile, BytesWatch, Place, read_json
from eos.data.mix import (
    SCIENCEQA,
    SOURCES,
    YES_NO,
    in_turns,
    order_of,
    science_sample,
    source_of,
    yes_no_sample,
)
from eos.data.mix_images import EvaluationImages, read_evaluated
from eos.errors import DataError
from eos.runs.files import write_atomically

Row: TypeAlias = dict[str, Any]  # a sample in LLaVA's format
DUPLICATE = "duplicate"
ANSWERS = ("Yes", "No")
SCIENCE_FILES = ("problems.json", "pid_splits.json")


class SourceCount(Frozen):
    """How many samples a source has, how many are in the mixture, and why others were dropped."""

    available: int
    kept: int
    dropped: dict[str, int]


class MixManifest(Artifact):
    """What a mixture was made of.

    Attributes:
        size: samples asked for.
        kept: samples in the mixture.
        sources: by name; samples after the last that was needed were not looked at.
        unused: entries of the mix that belong to no source.
        evaluated: images that may not be used: known by name, and files compared by content.
        inputs: sha256 of the files read.
        output: sha256 of the file written.
    """

    schema_: Literal["eos.mix/1"] = Field(default="eos.mix/1", alias="schema")
    seed: int
    size: int
    kept: int
    sources: dict[str, SourceCount]
    unused: int
    evaluated: dict[str, int]
    inputs: dict[str, str]
    output: str


@dataclass
class _Choice:
    """Makes the samples of candidates, and drops those that cannot be used."""

    images: Path
    evaluated: EvaluationImages
    dropped: list[Row] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)

    def usable(self, source: str, rows: Iterable[Row]) -> Iterator[Row]:
        """Give the samples that can be used; the others are noted."""
        for row in rows:
            said = json.dumps([row["image"], row["conversations"]]).encode()
            digest = hashlib.blake2b(said, digest_size=16).digest()
            problem = self.evaluated.problem(self.images / row["image"])
            problem = problem or (DUPLICATE if digest in self.seen else None)
            self.seen.add(digest)
            if problem is None:
                yield {**row, "source": source}
            else:
                note = {"id": row["id"], "image": row["image"], "source": source}
                self.dropped.append({**note, "reason": problem})

    def count(self, source: str, *, available: int, chosen: Sequence[Row]) -> SourceCount:
        """Count the samples of a source: there, in the mixture, and dropped by reason."""
        kept = sum(row["source"] == source for row in chosen)
        dropped = Counter(x["reason"] for x in self.dropped if x["source"] == source)
        return SourceCount(available=available, kept=kept, dropped=dict(dropped))


@dataclass
class _Candidates:
    """Where the samples of each source are, in the order of the seed.

    Those of yes/no questions are listed by answer, so that half of them are chosen of each.
    """

    seed: int
    places: dict[str, list[tuple[int, Place]]] = field(default_factory=dict)
    unused: int = 0

    def collect(self, array: ArrayFile, watch: BytesWatch | None) -> None:
        """Read the whole file in order."""
        for number, (place, entry) in enumerate(array.entries(watch)):
            source, order = source_of(entry), order_of(self.seed, str(number))
            if source is None:
                self.unused += 1
                continue
            if source == YES_NO:
                source = yes_no_sample(entry, order)["conversations"][1]["value"]
            self.places.setdefault(source, []).append((order, place))
        for found in self.places.values():
            found.sort()

    def rows(self, source: str, file: BinaryIO) -> Iterator[Row]:
        """Read the samples of a source, or of an answer, in their order."""
        for order, place in self.places.get(source, ()):
            entry = place.read(file)
            yield yes_no_sample(entry, order) if source in ANSWERS else entry

    def count(self, source: str) -> int:
        """Count the samples of a source."""
        lists = ANSWERS if source == YES_NO else [source]
        return sum(len(self.places.get(x, ())) for x in lists)


def make_mix(
    mix: Path,
    images: Path,
    *,
    scienceqa: Path,
    evaluated: Iterable[Path],
    out: Path,
    size: int = 50_000,
    seed: int = 0,
    watch: BytesWatch | None = None,
) -> MixManifest:
    """Write a mixture to ``out``, its manifest and the dropped samples beside it.

    Args:
        mix: ``llava_v1_5_mix665k.json``.
        images: folder that its image paths start from.
        scienceqa: folder of ``problems.json``, ``pid_splits.json`` and the training images.
        evaluated: folders of evaluation images, or files that name them.
        out: the mixture, in LLaVA's format, image paths relative to ``images``.
        size: samples.
        seed: which draws them.
        watch: called with the number of bytes of ``mix`` that are read.
    """
    rules, candidates, array = read_evaluated(evaluated), _Candidates(seed), ArrayFile(mix)
    choice, (science, digests) = _Choice(images, rules), _science_rows(scienceqa, images, seed)
    candidates.collect(array, watch)
    with mix.open("rb") as file:
        streams = {x: choice.usable(x, candidates.rows(x, file)) for x in SOURCES}
        streams[SCIENCEQA] = choice.usable(SCIENCEQA, science)
        answers = [choice.usable(YES_NO, candidates.rows(x, file)) for x in ANSWERS]
        streams[YES_NO] = chain.from_iterable(zip(*answers, strict=False))  # as many of each
        chosen = list(islice(in_turns(streams.values()), size))
    available = {x: candidates.count(x) for x in SOURCES} | {SCIENCEQA: len(science)}
    sources = {x: choice.count(x, available=available[x], chosen=chosen) for x in SOURCES}
    _check_sources(sources, choice.dropped, size)
    text = "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in chosen) + "\n]\n"
    manifest = MixManifest(
        seed=seed,
        size=size,
        kept=len(chosen),
        sources=sources,
        unused=candidates.unused,
        evaluated={"names": len(rules.names), "files": sum(map(len, rules.files.values()))},
        inputs={mix.name: array.digest, **digests},
        output=hashlib.sha256(text.encode("utf-8")).hexdigest(),
    )
    notes = "".join(json.dumps(note) + "\n" for note in choice.dropped)
    write_atomically(beside(out, "dropped.jsonl"), notes)
    write_atomically(out, text)
    manifest.save(beside(out, "manifest.json"))
    return manifest


def beside(out: Path, name: str) -> Path:
    """Name a file after the mixture: ``mix.json`` has a ``mix.manifest.json``."""
    return out.with_name(f"{out.stem}.{name}")


def _science_rows(folder: Path, images: Path, seed: int) -> tuple[list[Row], dict[str, str]]:
    """Make a sample of every training problem of ScienceQA that has an image; digest its files."""
    read = {name: read_json(folder / name) for name in SCIENCE_FILES}
    problems, splits = (content for content, _ in read.values())
    pictures = next((x for x in (folder / "images/train", folder / "train") if x.is_dir()), None)
    if pictures is None:
        raise DataError(f"expected a folder images/train in {folder}, found none")
    rows = []
    try:
        for number in sorted(splits["train"], key=lambda x: order_of(seed, f"{SCIENCEQA} {x}")):
            problem = problems[number]
            if problem.get("image"):
                image = os.path.relpath(pictures / number / problem["image"], images)
                rows.append(science_sample(number, problem, image))
    except (KeyError, TypeError, IndexError, AttributeError) as failure:
        raise DataError(
            f"{folder}: expected problems of ScienceQA with question, choices, answer and image; "
            f"found one without: {failure!r}"
        ) from None
    return rows, {name: digest for name, (_, digest) in read.items()}


def _check_sources(sources: dict[str, SourceCount], dropped: list[Row], size: int) -> None:
    empty = [name for name, found in sources.items() if not found.kept]
    if not empty or size < len(SOURCES):
        return
    told = "; ".join(
        f"{x}: {sources[x].available} samples, dropped {sources[x].dropped}" for x in empty
    )
    such = [row["image"] for row in dropped if row["source"] in empty][:3]
    raise DataError(
        f"expected samples of every source; found none that can be used of {told}"
        + (f", such as {', '.join(such)}" if such else "")
        + ". Check --mix, --images and --scienceqa"
    )
