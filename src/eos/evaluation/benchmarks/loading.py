"""Loading: the questions of a benchmark from a folder or a dataset, and those that are unusable.

Nothing is scored silently: an entry without its parts, a second one of the same name, an answer
that is no option, an image that is missing or does not decode is named, counted and left out.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from eos.data.order import permutation
from eos.data.samples import Skipped, UnusableError, load_image
from eos.errors import ConfigError, DataError
from eos.evaluation.benchmarks.files import BROKEN, INCOMPLETE
from eos.evaluation.benchmarks.questions import Benchmark, Query, Row
from eos.evaluation.benchmarks.tables import Table, folder_table, hub_table

MISSING_IMAGE, DUPLICATE = "missing image", "duplicate id"
MISSING, PARTIAL = "missing question", "incomplete group"


@dataclass(frozen=True)
class Loaded:
    """Questions to ask, and what could not be used.

    Attributes:
        questions: by family.
        skipped: entries that were left out.
        digest: of texts, answers and images.
    """

    questions: dict[str, list[Query]]
    skipped: tuple[Skipped, ...]
    digest: str


def load(benchmark: Benchmark, folder: Path | None, *, limit: int | None, seed: int) -> Loaded:
    """Load up to ``limit`` questions of each family, all if None; the seed draws them."""
    found, skipped = _read(benchmark, folder)
    if len(found) < benchmark.size:
        missing = benchmark.size - len(found)
        reason = f"expected the {benchmark.size} published questions, found {len(found)}"
        skipped.append(Skipped(benchmark.name, reason, MISSING, missing))
    chosen: dict[str, list[Query]] = {}
    digest = hashlib.sha256()
    for family in dict.fromkeys(question.family for question in found):
        own = [question for question in found if question.family == family]
        clusters = list(_clusters(own, benchmark.together, skipped))
        if limit is not None and limit < len(own):
            clusters = [clusters[place] for place in permutation(len(clusters), seed=seed)]
        kept = _usable(clusters, len(own) if limit is None else limit, skipped, digest)
        if kept:
            chosen[family] = kept
    if not chosen:
        reasons = " | ".join(x.reason for x in skipped[:3])
        raise DataError(f"expected usable questions of {benchmark.name}, found none: {reasons}")
    return Loaded(chosen, tuple(skipped), digest.hexdigest()[:16])


def _rows(benchmark: Benchmark, folder: Path | None) -> Iterable[Row]:
    """Open the dataset of the hub, or what a folder holds: tables or published files."""
    if folder is None:
        return benchmark.join([hub_table(table) for table in benchmark.tables])
    inside = folder / benchmark.name
    place = inside if inside.is_dir() and folder.name != benchmark.name else folder
    if not place.is_dir():
        raise DataError(f"expected a folder of {benchmark.title} at {place}, found none")
    tables = [folder_table(place, table) for table in benchmark.tables]
    known: list[Table] = [table for table in tables if table is not None]
    if len(known) == len(tables):
        return benchmark.join(known)
    if benchmark.rows is None:
        raise DataError(f"expected {expected(benchmark)} in {place}, found none")
    return benchmark.rows(place)


def expected(benchmark: Benchmark) -> str:
    """Name the files of a benchmark and where they are expected."""
    named = ", ".join(f"{path} ({source})" for path, source in benchmark.files.items())
    return f"{named}, or the parquet files of {benchmark.tables[0].name}"


def _read(benchmark: Benchmark, folder: Path | None) -> tuple[list[Query], list[Skipped]]:
    """Make questions of all rows, each id once."""
    found: dict[str, Query] = {}
    skipped: list[Skipped] = []
    try:
        for number, row in enumerate(_rows(benchmark, folder)):
            _add(benchmark, row, f"entry {number}", found, skipped)
    except DataError as failure:
        raise DataError(f"{benchmark.title}: {failure}") from None
    except (KeyError, TypeError, AttributeError) as failure:  # the file as a whole has another form
        raise DataError(
            f"{benchmark.title}: expected {expected(benchmark)}; found another form: {failure!r}"
        ) from None
    if not found and not skipped:
        raise DataError(
            f"{benchmark.title}: expected {expected(benchmark)} in {folder}, found none"
        )
    return list(found.values()), skipped


def _add(
    benchmark: Benchmark, row: Row, name: str, found: dict[str, Query], skipped: list[Skipped]
) -> None:
    if BROKEN in row:
        skipped.append(row[BROKEN])
        return
    for key in ("question_id", "index", "id"):
        if row.get(key) is not None:
            name = f"{name}, {key} {row[key]}"
            break
    try:
        question = benchmark.question(row)
    except UnusableError as failure:
        skipped.append(Skipped(name, str(failure), failure.kind))
        return
    except (KeyError, TypeError, ValueError) as failure:
        skipped.append(Skipped(name, f"expected all columns, found {failure!r}", INCOMPLETE))
        return
    if question is not None and question.id in found:
        skipped.append(Skipped(name, f"a second question {question.id!r}", DUPLICATE))
    elif question is not None:
        found[question.id] = question


def _clusters(
    questions: Sequence[Query], together: int | None, skipped: list[Skipped]
) -> Iterator[list[Query]]:
    """Put together the questions that count only together, others each by itself."""
    groups: dict[str, list[Query]] = {}
    for question in questions:
        name = question.id if together == 1 else question.cluster
        groups.setdefault(name, []).append(question)
    for name, group in groups.items():
        if together in (None, len(group)):
            yield group
        else:
            reason = f"expected {together} questions on {name}, found {len(group)}"
            skipped += [Skipped(question.id, reason, PARTIAL) for question in group]


def _usable(
    clusters: Sequence[list[Query]], limit: int, skipped: list[Skipped], digest: "hashlib._Hash"
) -> list[Query]:
    """Keep clusters whose images all decode, up to a number of questions."""
    kept: list[Query] = []
    left = iter(clusters)
    with ThreadPoolExecutor() as pool:
        while block := list(islice(left, limit - len(kept))):
            marked = pool.map(lambda cluster: [_mark(x) for x in cluster], block)
            for cluster, marks in zip(block, marked, strict=True):
                bad = {x.id: x for x in marks if isinstance(x, Skipped)}
                if bad:
                    skipped += bad.values()
                    reason = "another of its group is unusable"
                    skipped += [Skipped(x.id, reason, PARTIAL) for x in cluster if x.id not in bad]
                elif not kept and len(cluster) > limit:
                    raise ConfigError(
                        f"expected a limit of at least {len(cluster)}, since so many questions "
                        f"count only together ({cluster[0].cluster}); found {limit}"
                    )
                elif len(kept) + len(cluster) > limit:
                    return kept
                else:
                    kept += cluster
                    digest.update("".join(map(str, marks)).encode())
    return kept


def _mark(question: Query) -> str | Skipped:
    """Give a digest of a question, or why it cannot be used."""
    try:
        data = question.image()
        load_image(data, where=question.id)
    except FileNotFoundError as failure:
        return Skipped(question.id, f"no image {failure.filename}", MISSING_IMAGE)
    except UnusableError as failure:
        return Skipped(question.id, str(failure), failure.kind)
    except (OSError, ValueError) as failure:
        return Skipped(question.id, f"no image: {failure}", "broken image")
    said = repr((question.id, question.text, question.options, question.answers, question.hint))
    return hashlib.sha256(said.encode() + data).hexdigest()
