"""AI2D: questions with options on diagrams of school science; the test images."""

from collections.abc import Iterator
from pathlib import Path

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row

FAMILY = "test"


def _rows(folder: Path) -> Iterator[Row]:
    root = files.need(folder, "ai2d/questions", "questions").parent
    listed = files.need(folder, "ai2d_test_ids.csv", "ai2d/ai2d_test_ids.csv").read_text()
    for name in (f"{x.strip()}.png" for x in listed.splitlines() if x.strip().isdigit()):
        path = root / "questions" / f"{name}.json"
        for text, row in files.load(path)["questions"].items() if path.is_file() else ():
            # questions on letters that replace labels have images of their own, where published
            places = [root / "abc_images"] if row.get("abcLabel") else []
            found = {"question": text, "options": row.get("answerTexts")}
            found |= {"id": row.get("questionId"), "answer": row.get("correctAnswer")}
            yield {**found, "image": files.image([*places, root / "images"], name)}


def _question(row: Row) -> Query:
    options, name = tuple(map(str, row.get("options") or ())), files.text(row, "id")
    answer, text = files.letter(row.get("answer"), options), files.text(row, "question")
    return Query(name, row["image"], text, (answer,), FAMILY, name, options)


BENCHMARK = Benchmark(
    name="ai2d",
    title="AI2D",
    what="Questions with options on diagrams.",
    paper="arXiv:1603.07396",
    metric="accuracy",
    files={
        "ai2d/{images,questions}/": "AI2D, ai2d-all.zip",
        "ai2d_test_ids.csv": "AI2D, test ids",
    },
    tables=(HubTable("lmms-lab/ai2d", "test"),),
    size=3088,
    rows=_rows,
    question=_question,
    prompt=prompts.choice(),
    score=answers.option_score,
    columns=answers.option_columns,
    figures=answers.OPTIONS,
)
