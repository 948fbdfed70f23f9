"""OCRBench: read text in images; an answer counts if it contains a reference."""

from collections.abc import Iterator
from pathlib import Path

from eos.data.samples import UnusableError
from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row

FORMULAS = "HME100k"  # compared without blanks, with their case


def _rows(folder: Path) -> Iterator[Row]:
    path = files.need(folder, "OCRBench.json", "OCRBench/OCRBench.json")
    for place, row in enumerate(files.load(path)):
        given = row.get("answers")
        found = {"id": place, "question": row.get("question"), "dataset": row.get("dataset_name")}
        found |= {"answer": [given] if isinstance(given, str) else given}
        image = files.image([folder / "OCRBench_Images", folder], row.get("image_path"))
        yield {**found, "question_type": row.get("type"), "image": image}


def _question(row: Row) -> Query:
    name, text, source = (files.text(row, x) for x in ("id", "question", "dataset"))
    given = tuple(str(x) for x in row.get("answer") or () if str(x).strip())
    if not given:
        raise UnusableError("expected an answer, found none", kind=files.INCOMPLETE)
    kind = files.text(row, "question_type")
    return Query(name, row["image"], text, given, kind, name, kind=source)


def _score(text: str, question: Query) -> float:
    return float(any(_bare(x, question) in _bare(text, question) for x in question.answers))


def _bare(text: str, question: Query) -> str:
    plain = text.strip().replace("\n", " ")
    if question.kind == FORMULAS:
        return plain.replace(" ", "")
    return plain.translate(NARROW).lower().strip()


NARROW = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}  # ASCII
BENCHMARK = Benchmark(
    name="ocrbench",
    title="OCRBench",
    what="Text in images: 1000 questions of ten kinds.",
    paper="arXiv:2305.07895",
    metric="questions whose answer contains a reference, in % (the official score over 10)",
    files={"OCRBench.json": "OCRBench", "OCRBench_Images/": "OCRBench, images"},
    tables=(HubTable("echo840/OCRBench", "test"),),
    size=1000,
    rows=_rows,
    question=_question,
    prompt=prompts.as_it_is,
    score=_score,
    columns=answers.score_columns,
    figures=answers.ACCURACY,
    max_new_tokens=128,
)
