"""Tables: a benchmark's Hugging Face dataset, from the hub or its cache, or from a folder.

A folder holds what `datasets` saved, or the dataset's parquet files. Images are read one at a time,
undecoded, whatever their column's type.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eos.data.settings import HubData
from eos.data.sources import SAVED, open_table
from eos.errors import DataError
from eos.evaluation.benchmarks.questions import HubTable, Row

IMAGE = "image"
MOVED = ("lmms-lab/", "lmms-lab-encoder/")  # where these datasets were, and are now too


@dataclass(frozen=True)
class Table:
    """Rows of a dataset; ``image`` becomes a function that reads the bytes, ``id`` a number."""

    rows: Any

    def __iter__(self) -> Iterator[Row]:
        texts = self.rows.remove_columns([x for x in (IMAGE,) if x in self.rows.column_names])
        for number, row in enumerate(texts):
            yield {"id": number, **row, IMAGE: partial(self.image, number)}

    def image(self, number: int) -> bytes:
        """Read an image; of several, as SEED-Bench's table has, the first."""
        [row] = self.rows.select_columns([IMAGE]).with_format("arrow")[number].to_pylist()
        found = row[IMAGE][0] if isinstance(row[IMAGE], list) else row[IMAGE]
        kept = found if isinstance(found, bytes) else (found or {}).get("bytes")
        if kept is not None:
            return kept
        return Path((found or {}).get("path") or "no bytes in the table").read_bytes()


def hub_table(table: HubTable) -> Table:
    """Open a table of the hub, or of the cache where there is no network."""
    names = [table.name, table.name.replace(*MOVED)]
    failures = []
    for name in dict.fromkeys(names):
        try:
            return Table(open_table(HubData(name=name, subset=table.subset, split=table.split)))
        except DataError as failure:
            failures.append(str(failure))
    raise DataError(
        f"{'; '.join(failures)}. Give the benchmark's files by data (--data FOLDER), or download "
        "the dataset where there is a network: `datasets` keeps it in its cache"
    )


def folder_table(folder: Path, table: HubTable) -> Table | None:
    """Open a table in a folder; None if it holds no saved dataset and no parquet file of it."""
    split = table.split
    for place in [folder / (table.subset or "."), folder]:
        if any((place / name).exists() for name in SAVED):
            return Table(open_table(HubData(name=str(place), split=split)))
        patterns = (f"**/{split}-*.parquet", f"**/{split}/*.parquet", "*.parquet")
        found = next((x for x in (sorted(place.glob(y)) for y in patterns) if x), [])
        if found:
            names = tuple(map(str, found))
            return Table(open_table(HubData(name="parquet", files=names, split="train")))
    return None
