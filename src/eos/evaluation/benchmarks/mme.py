"""MME: two questions on each image, one to be answered yes and one no, in 14 categories."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Answered, Benchmark, HubTable, Question, Row
from eos.evaluation.totals import Sums, mean, ratio

SEEN = "existence count position color posters celebrity scene landmark artwork OCR"
THOUGHT = "commonsense_reasoning numerical_calculation text_translation code_reasoning"
PARTS = {"total": f"{SEEN} {THOUGHT}", "perception": SEEN, "cognition": THOUGHT}
KINDS = PARTS["total"].split()


def _rows(folder: Path) -> Iterator[Row]:
    root = files.find(folder, "MME_Benchmark_release_version") or folder
    for path in sorted([*root.glob("*/*.txt"), *root.glob("*/questions_answers_YN/*.txt")]):
        kind = path.relative_to(root).parts[0]
        if kind not in KINDS:
            continue
        places = [path, root / kind / "images" / path.name]
        image = files.first([x.with_suffix(y) for x in places for y in (".jpg", ".png", ".jpeg")])
        for line in filter(str.strip, path.read_text(encoding="utf-8").splitlines()):
            text, _, answer = line.partition("\t")
            found = {"question_id": f"{kind}/{image.name}", "question": text, "answer": answer}
            yield {**found, "category": kind, "image": image.read_bytes}


def _question(row: Row) -> Question:
    kind = files.one_of(row.get("category"), KINDS)
    image, text = files.text(row, "question_id"), files.text(row, "question")
    answer = files.one_of(row.get("answer"), ("yes", "no"))
    return Question(f"{image}/{text}", row["image"], text, (answer,), kind, f"{kind}/{image}")


def _columns(answered: Sequence[Answered]) -> tuple[float, ...]:
    return *answers.score_columns(answered), all(x.score == 1 for x in answered), 1


def _points(kinds: str, sums: Sums, families: Sequence[str]) -> Sums:
    each = ratio(sums[..., 0], sums[..., 1]) + ratio(sums[..., 2], sums[..., 3])
    chosen = np.array([kind in kinds.split() for kind in families])
    return np.asarray(100 * (each * chosen).sum(-1))


FIGURES = {name: partial(_points, kinds) for name, kinds in PARTS.items()}
BENCHMARK = Benchmark(
    name="mme",
    title="MME",
    what="Pairs of questions to be answered yes and no, in 14 categories.",
    paper="arXiv:2306.13394",
    metric="perception + cognition: accuracy and accuracy+ (both of an image) of each category",
    files={"MME_Benchmark_release_version/<category>/": "MME"},
    tables=(HubTable("lmms-lab/MME", "test"),),
    size=2374,
    rows=_rows,
    question=_question,
    prompt=prompts.yes_or_no,
    score=answers.yes_no_score,
    columns=_columns,
    figures={**FIGURES, "accuracy": mean(), "accuracy+": mean(2, 3)},
    together=2,
    points=28,
)
