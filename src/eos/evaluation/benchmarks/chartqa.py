"""ChartQA: questions on charts, written by people and made by a model."""

from collections.abc import Iterator
from pathlib import Path

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row

KINDS = ("human_test", "augmented_test")
TOLERANCE = 0.05  # relative, of a number


def _rows(folder: Path) -> Iterator[Row]:
    root = files.need(folder, "test", "ChartQA Dataset/test")
    for kind in KINDS:
        path = files.need(root, f"test_{kind.removesuffix('_test')}.json")
        for place, row in enumerate(files.load(path)):
            found = {"id": f"{kind}/{place}", "type": kind, "question": row.get("query")}
            image = files.image([root / "png"], row.get("imgname"))
            yield {**found, "answer": row.get("label"), "image": image}


def _question(row: Row) -> Query:
    kind = files.one_of(row.get("type"), KINDS)
    name, text, answer = (files.text(row, x) for x in ("id", "question", "answer"))
    return Query(name, row["image"], text, (answer,), kind, name)


def _score(text: str, question: Query) -> float:
    said, true = text.strip(), question.answers[0]
    numbers = _number(said), _number(true)
    if numbers[0] is not None and numbers[1]:
        return float(abs(numbers[0] - numbers[1]) <= TOLERANCE * abs(numbers[1]))
    return float(said.casefold() == true.casefold())


def _number(text: str) -> float | None:
    try:
        return float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None


BENCHMARK = Benchmark(
    name="chartqa",
    title="ChartQA",
    what="Questions on charts, by people and by a model.",
    paper="arXiv:2203.10244",
    metric="relaxed accuracy: numbers within 5%, other answers the same",
    files={"test/test_{human,augmented}.json, test/png/": "ChartQA, ChartQA Dataset"},
    tables=(HubTable("lmms-lab/ChartQA", "test"),),
    size=2500,
    rows=_rows,
    question=_question,
    prompt=prompts.word,
    score=_score,
    columns=answers.score_columns,
    figures=answers.ACCURACY,
)
