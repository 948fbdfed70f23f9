"""RealWorldQA: questions on photographs, many from cars, with options or short answers."""

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row

FAMILY = "test"


def _question(row: Row) -> Query:
    name, text, answer = (files.text(row, x) for x in ("id", "question", "answer"))
    kind = "options" if answer in "ABCD" else "words"
    return Query(name, row["image"], text, (answer,), FAMILY, name, kind=kind)


def _score(text: str, question: Query) -> float:
    rule = answers.option_score if question.kind == "options" else answers.same_text
    return rule(text, question)


BENCHMARK = Benchmark(
    name="realworldqa",
    title="RWQA",
    what="Questions on photographs, with options or short answers.",
    paper="xAI, 2024",
    metric="accuracy: the option, or the same words",
    files={"test-*.parquet": "RealWorldQA, the dataset xai-org/RealWorldQA itself"},
    tables=(HubTable("lmms-lab/RealWorldQA", "test"),),
    size=765,
    question=_question,
    prompt=prompts.as_it_is,
    score=_score,
    columns=answers.score_columns,
    figures=answers.ACCURACY,
)
