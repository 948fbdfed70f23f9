"""MMBench-en: questions with options, asked again with the options rotated; the dev set."""

import base64
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Reply, Row
from eos.evaluation.totals import mean

SPLIT = "dev"
ROTATION = 1_000_000  # added to the index of a question whose options are rotated
ABSENT = ("", "nan", "none")


def _rows(folder: Path) -> Iterator[Row]:
    names = ("mmbench_dev_20230712.tsv", "mmbench_dev_en_20231003.tsv", "MMBench_DEV_EN*.tsv")
    for row in files.tsv(files.need(folder, *names)):
        yield {**row, "image": partial(base64.b64decode, str(row.get("image")))}


def _question(row: Row) -> Query:
    options = tuple(x for x in (_text(row, letter) for letter in "ABCD") if x)
    index, text = int(files.text(row, "index")), files.text(row, "question")
    answer = files.one_of(row.get("answer"), "ABCD"[: len(options)])
    group = str(index % ROTATION)
    return Query(
        str(index), row["image"], text, (answer,), SPLIT, group, options, _text(row, "hint")
    )


def _text(row: Row, name: str) -> str:
    found = str(row.get(name, "")).strip()
    return "" if found.lower() in ABSENT else found


def _columns(answered: Sequence[Reply]) -> tuple[float, ...]:
    first = [x.score for x in answered if int(x.question.id) < ROTATION]
    every = all(x.score == 1 for x in answered)
    return every, 1, *answers.option_columns(answered)[1:], sum(first), len(first)


BENCHMARK = Benchmark(
    name="mmbench",
    title="MMB-en",
    what="Questions with options, asked with each rotation of the options.",
    paper="arXiv:2307.06281",
    metric="questions answered rightly in every rotation; also in the first alone",
    files={"mmbench_dev_20230712.tsv": "MMBench, English dev set"},
    tables=(HubTable("lmms-lab/MMBench", SPLIT, "en"),),
    size=4329,
    rows=_rows,
    question=_question,
    prompt=prompts.choice(),
    score=answers.option_score,
    columns=_columns,
    figures={"circular": mean(), "single": mean(4, 5), "unrecognised": mean(3, 2)},
    together=None,
)
