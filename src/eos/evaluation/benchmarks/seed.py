"""SEED-Bench: questions with four options; those on images, not those on videos."""

from collections.abc import Iterator
from pathlib import Path

from eos.data.samples import UnusableError
from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row

FAMILY = "image"
CHOICES = ("choice_a", "choice_b", "choice_c", "choice_d")


def _rows(folder: Path) -> Iterator[Row]:
    places = [folder / "SEED-Bench-image"]
    for row in files.load(files.need(folder, "SEED-Bench.json"))["questions"]:
        yield {**row, "image": files.image(places, row.get("data_id"))}


def _question(row: Row) -> Query | None:
    if row.get("data_type") != FAMILY:
        if row.get("data_type") == "video":
            return None
        raise UnusableError(
            f"expected data_type image or video, found {row.get('data_type')!r}",
            kind=files.INCOMPLETE,
        )
    options = tuple(files.text(row, x) for x in CHOICES)
    name, image, text = (files.text(row, x) for x in ("question_id", "data_id", "question"))
    answer = files.one_of(row.get("answer"), "ABCD")
    return Query(name, row["image"], text, (answer,), FAMILY, image, options)


BENCHMARK = Benchmark(
    name="seed",
    title="SEED",
    what="Questions with four options on images of SEED-Bench.",
    paper="arXiv:2307.16125",
    metric="accuracy on images",
    files={"SEED-Bench.json": "SEED-Bench", "SEED-Bench-image/": "SEED-Bench, images"},
    tables=(HubTable("lmms-lab/SEED-Bench", "test"),),
    size=14233,
    rows=_rows,
    question=_question,
    prompt=prompts.choice(),
    score=answers.option_score,
    columns=answers.option_columns,
    figures=answers.OPTIONS,
)
