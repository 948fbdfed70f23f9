"""ScienceQA-image: school questions with options, those of the test set that have an image."""

from collections.abc import Iterator
from pathlib import Path

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row

SPLIT = "test"


def _rows(folder: Path) -> Iterator[Row]:
    problems = files.load(files.need(folder, "problems.json"))
    for name in files.load(files.need(folder, "pid_splits.json"))[SPLIT]:
        row = problems.get(name, {})
        if row.get("image") or not row:
            place = folder / "images" / SPLIT / name / str(row.get("image"))
            yield {**row, "id": name, "image": place.read_bytes}


def _question(row: Row) -> Query:
    options, name = tuple(map(str, row.get("choices") or ())), files.text(row, "id")
    answer, text = files.letter(row.get("answer"), options), files.text(row, "question")
    hint = str(row.get("hint") or "").strip()
    return Query(name, row["image"], text, (answer,), SPLIT, name, options, hint)


BENCHMARK = Benchmark(
    name="scienceqa",
    title="SQA",
    what="School questions with options and an image.",
    paper="arXiv:2209.09513",
    metric="accuracy",
    files={
        "problems.json, pid_splits.json": "ScienceQA, data/scienceqa",
        "images/test/<id>/image.png": "ScienceQA, test.zip",
    },
    tables=(HubTable("lmms-lab/ScienceQA", SPLIT, "ScienceQA-IMG"),),
    size=2017,
    rows=_rows,
    question=_question,
    prompt=prompts.choice("Context: "),
    score=answers.option_score,
    columns=answers.option_columns,
    figures=answers.OPTIONS,
)
