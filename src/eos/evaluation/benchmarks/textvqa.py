"""TextVQA: questions on text in images, ten answers each; the validation set.

Without OCR tokens in the prompt: LLaVA's published 58.2 has them, token-reduction papers have not.
"""

from collections.abc import Iterator
from pathlib import Path

from eos.data.samples import UnusableError
from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row
from eos.evaluation.benchmarks.vqa_words import vqa_accuracy

SPLIT = "validation"


def _rows(folder: Path) -> Iterator[Row]:
    places = [folder / "train_images", folder / "train_val_images" / "train_images"]
    for row in files.load(files.need(folder, "TextVQA_0.5.1_val.json"))["data"]:
        yield {**row, "image": files.image(places, f"{row.get('image_id')}.jpg")}


def _question(row: Row) -> Query:
    name, image, text = (files.text(row, x) for x in ("question_id", "image_id", "question"))
    given = tuple(map(str, row.get("answers") or ()))
    if len(given) < 2:
        reason = f"expected the answers of ten annotators, found {len(given)}"
        raise UnusableError(reason, kind=files.INCOMPLETE)
    return Query(name, row["image"], text.capitalize(), given, SPLIT, image)


def _score(text: str, question: Query) -> float:
    return vqa_accuracy(text, question.answers)


BENCHMARK = Benchmark(
    name="textvqa",
    title="TextVQA",
    what="Questions on text in images; ten annotators' answers.",
    paper="arXiv:1904.08920",
    metric="VQA accuracy: the server's normalisation and ten-answer rule",
    files={
        "TextVQA_0.5.1_val.json": "TextVQA 0.5.1, validation",
        "train_images/<id>.jpg": "TextVQA, train_val_images.zip",
    },
    tables=(HubTable("lmms-lab/textvqa", SPLIT),),
    size=5000,
    rows=_rows,
    question=_question,
    prompt=prompts.short,
    score=_score,
    columns=answers.score_columns,
    figures=answers.ACCURACY,
    max_new_tokens=32,
)
