"""POPE: is this object in the image? Three ways to choose objects that are not."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Reply, Row
from eos.evaluation.totals import Sums, family_mean, mean, ratio

SPLITS = ("random", "popular", "adversarial")


def _rows(folder: Path) -> Iterator[Row]:
    for split in SPLITS:
        name = f"coco_pope_{split}.json"
        path = files.find(folder, name, f"coco/{name}", f"output/coco/{name}")
        for row in files.lines(path):
            image = row.get("image")
            found = {**row, "question": row.get("text"), "answer": row.get("label")}
            found |= {"category": split, "image_source": Path(str(image)).stem}
            yield {**found, "image": files.image([folder / "val2014", folder], image)}


def _question(row: Row) -> Query:
    kind, image = files.one_of(row.get("category"), SPLITS), files.text(row, "image_source")
    answer = files.one_of(row.get("answer"), ("yes", "no"))
    name, text = f"{kind}/{files.text(row, 'question_id')}", files.text(row, "question")
    return Query(name, row["image"], text, (answer,), kind, image)


def _columns(answered: Sequence[Reply]) -> tuple[float, ...]:
    said = [answers.yes_no_of(x.text) for x in answered]
    true = [x for x in answered if x.question.answers[0] == "yes"]
    both, scores = sum(x.score for x in true), answers.score_columns(answered)
    return *scores, said.count(None), said.count("yes"), len(true), both


def _f1(sums: Sums, _: Sequence[str]) -> Sums:  # an unrecognised answer is a missed yes
    each = 200 * ratio(sums[..., 5], sums[..., 3] + sums[..., 4])
    return ratio(each.sum(-1), (sums[..., 1] > 0).sum(-1).astype(float))


BENCHMARK = Benchmark(
    name="pope",
    title="POPE",
    what="Is an object in the image? Random, popular and adversarial objects.",
    paper="arXiv:2305.10355",
    metric="accuracy, mean of the three splits; also F1 of yes and how often yes is said",
    files={"coco_pope_{random,popular,adversarial}.json": "POPE", "val2014/": "COCO val2014"},
    tables=(HubTable("lmms-lab/POPE", "test"),),
    size=9000,
    rows=_rows,
    question=_question,
    prompt=prompts.yes_or_no,
    score=answers.yes_no_score,
    columns=_columns,
    figures={"accuracy": family_mean(), "F1": _f1, "yes": mean(3), "unrecognised": mean(2)},
)
