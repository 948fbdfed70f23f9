"""Questions of a published benchmark, and what a benchmark's own file defines.

A benchmark reads its published files as rows with the columns of its Hugging Face table, so that
one function makes a question of either. An entry that cannot be used raises `UnusableError`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from eos.evaluation.totals import Figure

Row: TypeAlias = Mapping[str, Any]  # columns of a table; "image" is a function that reads it
ReadsImage: TypeAlias = Callable[[], bytes]
LETTERS = "ABCDEFGH"


@dataclass(frozen=True)
class Query:
    """One question of a benchmark.

    Attributes:
        id: its name, once in a benchmark.
        image: reads the image's file.
        text: the question, without options or instructions.
        answers: the references; for options, the letter.
        family: split or category.
        cluster: what questions share that are not independent, such as the image.
        options: texts of options, in the order of letters.
        hint: context that some questions come with.
        kind: what else a metric has to know.
    """

    id: str
    image: ReadsImage
    text: str
    answers: tuple[str, ...]
    family: str
    cluster: str
    options: tuple[str, ...] = ()
    hint: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Reply:
    """A question with a model's answer and its score."""

    question: Query
    text: str
    score: float


@dataclass(frozen=True)
class HubTable:
    """A table of a Hugging Face dataset."""

    name: str
    split: str
    subset: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """A published benchmark.

    Attributes:
        name: as in `eos eval --tasks`.
        title: column of the paper's tables.
        what: a line for lists.
        paper: where it was published.
        metric: what the paper's figure is.
        files: the published files, by where they are expected in the benchmark's folder.
        tables: of the Hugging Face dataset.
        size: published number of questions.
        question: makes a question of a row.
        prompt: the text of a question in a style of `prompts.STYLES`.
        score: of an answer, in [0, 1].
        columns: sums over one cluster's answers in one family, which figures are made of.
        figures: of the whole benchmark, by name; the first is the paper's.
        rows: reads published files as rows of the table; None if the table is what is published.
        join: puts together the rows of several tables.
        together: how many questions of a cluster count only together: 2 for pairs, None for all.
        max_new_tokens: length of an answer.
        points: of the full score of 100, for the paper's overall average.
    """

    name: str
    title: str
    what: str
    paper: str
    metric: str
    files: Mapping[str, str]
    tables: tuple[HubTable, ...]
    size: int
    question: Callable[[Row], Query | None]
    prompt: Callable[[Query, str], str]
    score: Callable[[str, Query], float]
    columns: Callable[[Sequence[Reply]], Sequence[float]]
    figures: Mapping[str, Figure]
    rows: Callable[[Path], Iterator[Row]] | None = None
    join: Callable[[Sequence[Iterable[Row]]], Iterable[Row]] = lambda tables: tables[0]
    together: int | None = 1
    max_new_tokens: int = 16
    points: float = 1.0

    @property
    def split(self) -> str:
        """The set of questions that is evaluated."""
        return self.tables[0].split
