"""MME: two questions on each image, one to be answered yes and one no, in 14 categories."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Reply, Row
from eos.evaluation.totals import family_sum, mean

SEEN = "existence count position color posters celebrity scene landmark artwork OCR"
INFERRED = "commonsense_reasoning numerical_calculation text_translation code_reasoning"
PARTS = {"total": f"{SEEN} {INFERRED}", "perception": SEEN, "cognition": INFERRED}
KINDS = PARTS["total"].split()


def _rows(folder: Path) -> Iterator[Row]:
    root = files.find(folder, "MME_Benchmark_release_version") or folder
    for kind, path in ((x, y) for x in KINDS for y in sorted((root / x).rglob("*.txt"))):
        places = [path, root / kind / "images" / path.name]
        image = files.first([x.with_suffix(y) for x in places for y in (".jpg", ".png", ".jpeg")])
        for line in filter(str.strip, path.read_text(encoding="utf-8").splitlines()):
            text, _, answer = line.partition("\t")
            found = {"question_id": f"{kind}/{image.name}", "question": text, "answer": answer}
            yield {**found, "category": kind, "image": image.read_bytes}


def _question(row: Row) -> Query:
    kind = files.one_of(row.get("category"), KINDS)
    image, text = files.text(row, "question_id"), files.text(row, "question")
    answer = files.one_of(row.get("answer"), ("yes", "no"))
    return Query(f"{image}/{text}", row["image"], text, (answer,), kind, f"{kind}/{image}")


def _columns(answered: Sequence[Reply]) -> tuple[float, ...]:
    return *answers.score_columns(answered), all(x.score == 1 for x in answered), 1


POINTS = {part: family_sum(kinds.split(), (0, 1), (2, 3)) for part, kinds in PARTS.items()}
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
    figures={**POINTS, "accuracy": mean(), "accuracy+": mean(2, 3)},
    together=2,
    points=28,
)
