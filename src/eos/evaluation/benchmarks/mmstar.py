"""MMStar: questions that cannot be answered without the image, in 18 fine categories."""

from eos.evaluation.benchmarks import answers, files, prompts
from eos.evaluation.benchmarks.questions import Benchmark, HubTable, Query, Row
from eos.evaluation.totals import family_mean, mean


def _question(row: Row) -> Query:
    name, text, kind = (files.text(row, x) for x in ("index", "question", "l2_category"))
    answer = files.one_of(row.get("answer"), "ABCD")
    return Query(name, row["image"], text, (answer,), kind, name)


BENCHMARK = Benchmark(
    name="mmstar",
    title="MMStar",
    what="Questions with options that cannot be answered without the image.",
    paper="arXiv:2403.20330",
    # the paper's scores are no multiples of 1/1500
    metric="accuracy, mean of the 18 fine categories as in lmms-eval; also over all questions",
    files={"mmstar.parquet": "MMStar, the dataset Lin-Chen/MMStar itself"},
    tables=(HubTable("Lin-Chen/MMStar", "val"),),
    size=1500,
    question=_question,
    prompt=prompts.letter,
    score=answers.option_score,
    columns=answers.option_columns,
    figures={"average": family_mean(), "accuracy": mean(), "unrecognised": mean(2)},
)
