"""Families: every kind of question, its kind of scene and the benchmark it imitates."""

from dataclasses import dataclass

from eos.miniature import questions as q
from eos.miniature.questions import MakesQuestion


@dataclass(frozen=True)
class QuestionFamily:
    """A kind of question about a kind of scene.

    Attributes:
        kind: of the scenes it is about.
        make: makes a question about a scene.
        group: "prior" or "extended", as in the paper's main table; "training" is never evaluated.
        imitates: the public benchmark whose demands it has, in small.
        hops: how many places of the image an answer depends on, one after the other.
    """

    kind: str
    make: MakesQuestion
    group: str
    imitates: str
    hops: int = 1


QUESTION_FAMILIES: dict[str, QuestionFamily] = {
    "presence": QuestionFamily("objects", q.presence, "prior", "POPE"),
    "attribute": QuestionFamily("objects", q.attribute, "prior", "MME"),
    "relation": QuestionFamily("objects", q.relation, "prior", "GQA"),
    "nearest": QuestionFamily("objects", q.nearest, "prior", "GQA", hops=2),
    "digit": QuestionFamily("digits", q.digit, "prior", "TextVQA"),
    "choice": QuestionFamily("objects", q.choice, "prior", "SEED, SQA"),
    "counting": QuestionFamily("objects", q.counting, "extended", "RealWorldQA"),
    "comparison": QuestionFamily("objects", q.comparison, "extended", "MMStar"),
    "string": QuestionFamily("strings", q.string, "extended", "OCRBench"),
    "chart": QuestionFamily("chart", q.chart, "extended", "ChartQA"),
    "bars": QuestionFamily("chart", q.bars, "extended", "ChartQA"),
    "link": QuestionFamily("diagram", q.link, "extended", "AI2D"),
    "path": QuestionFamily("diagram", q.path, "extended", "AI2D", hops=2),
    "listing": QuestionFamily("objects", q.listing, "extended", "OCRBench"),
    "followup": QuestionFamily("objects", q.followup, "extended", "MMBench", hops=2),
    "everything": QuestionFamily("objects", q.everything, "training", ""),
}
