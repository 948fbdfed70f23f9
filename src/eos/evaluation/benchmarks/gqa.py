"""GQA: short questions on scenes, the balanced test-dev set."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row

SPLIT = "testdev"


def _rows(folder: Path) -> Iterator[Row]:
    name = "testdev_balanced_questions.json"
    path = files.need(folder, name, f"questions1.2/{name}", f"questions/{name}", f"data/{name}")
    places = [folder / "images", folder / "data" / "images"]
    for key, row in files.load(path).items():
        image = files.image(places, f"{row.get('imageId')}.jpg")
        yield {**row, "id": key, "image": image}


def _join(tables: Sequence[Iterable[Row]]) -> Iterator[Row]:
    images = {row["id"]: row["image"] for row in tables[1]}
    for row in tables[0]:
        name = row.get("imageId")
        yield {**row, "image": images.get(name) or files.image([Path("images")], name)}


def _question(row: Row) -> Query:
    name, image, text = (files.text(row, x) for x in ("id", "imageId", "question"))
    return Query(name, row["image"], text, (files.text(row, "answer"),), SPLIT, image)


BENCHMARK = Benchmark(
    name="gqa",
    title="GQA",
    what="Short questions on scenes: balanced test-dev.",
    paper="arXiv:1902.09506",
    metric="exact match, case and punctuation aside",
    files={
        "testdev_balanced_questions.json": "GQA, questions1.2",
        "images/<id>.jpg": "GQA, images",
    },
    tables=(
        HubTable("lmms-lab/GQA", SPLIT, "testdev_balanced_instructions"),
        HubTable("lmms-lab/GQA", SPLIT, "testdev_balanced_images"),
    ),
    size=12578,
    rows=_rows,
    join=_join,
    question=_question,
    prompt=prompts.short,
    score=answers.same_text,
    columns=answers.score_columns,
    figures=answers.ACCURACY,
)
