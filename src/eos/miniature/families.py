"""Families: every kind of question, where it is asked and what it imitates."""

from dataclasses import dataclass

from eos.miniature import questions as q
from eos.miniature.questions import Ask


@dataclass(frozen=True)
class Family:
    """A kind of question: where it is asked, and what it imitates.

    Attributes:
        kind: the kind of scenes it is about.
        ask: makes a question.
        group: "prior" or "extended", as in the paper's main table; "training" is never evaluated.
        imitates: the public benchmark whose demands it has, in small.
        hops: how many looks it takes.
    """

    kind: str
    ask: Ask
    group: str
    imitates: str
    hops: int = 1


FAMILIES: dict[str, Family] = {
    "presence": Family("objects", q.presence, "prior", "POPE"),
    "attribute": Family("objects", q.attribute, "prior", "MME"),
    "relation": Family("objects", q.relation, "prior", "GQA"),
    "nearest": Family("objects", q.nearest, "prior", "GQA", hops=2),
    "digit": Family("digits", q.digit, "prior", "TextVQA"),
    "choice": Family("objects", q.choice, "prior", "SEED, SQA"),
    "counting": Family("objects", q.counting, "extended", "RealWorldQA"),
    "comparison": Family("objects", q.comparison, "extended", "MMStar"),
    "string": Family("strings", q.string, "extended", "OCRBench"),
    "chart": Family("chart", q.chart, "extended", "ChartQA"),
    "bars": Family("chart", q.bars, "extended", "ChartQA"),
    "link": Family("diagram", q.link, "extended", "AI2D"),
    "path": Family("diagram", q.path, "extended", "AI2D", hops=2),
    "listing": Family("objects", q.listing, "extended", "OCRBench"),
    "followup": Family("objects", q.followup, "extended", "MMBench", hops=2),
    "everything": Family("objects", q.everything, "training", ""),
}
