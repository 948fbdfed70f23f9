"""Rows: a run's costs and scores, and the families of questions that they are of.

Read without torch, which reports need not have.
"""

from collections.abc import Mapping, Sequence

from pydantic import Field

from eos.config import Frozen
from eos.evaluation.estimates import Score, macro, score
from eos.evaluation.totals import Total
from eos.sizes import Expected


class FamilyInfo(Frozen):
    """A family of questions: group, what it imitates, how many, and what guessing would give.

    The chance level is in points of 100; None if it is unknown.
    """

    group: str
    imitates: str
    n: int
    chance: float | None


class ResultRow(Frozen):
    """One run: what it costs, and how well it answers; groups and average are over families.

    Totals are a benchmark's own figures, such as F1 or MME's points; the first is the published.
    """

    name: str
    cost: Expected
    families: dict[str, Score]
    groups: dict[str, Score]
    average: Score
    totals: dict[str, Total] = Field(default_factory=dict)


def make_row(
    name: str,
    cost: Expected,
    *,
    scores: Mapping[str, Sequence[float]],
    full: Mapping[str, Sequence[float]] | None,
    families: Mapping[str, FamilyInfo],
    totals: Mapping[str, Total] | None = None,
) -> ResultRow:
    """Average a run's scores by family, group and in all; ``full`` is what they are compared to."""
    found = {
        family: score(own, None if full is None else full[family]) for family, own in scores.items()
    }
    groups: dict[str, list[Score]] = {}
    for family, info in families.items():
        groups.setdefault(info.group, []).append(found[family])
    return ResultRow(
        name=name,
        cost=cost,
        families=found,
        groups={group: macro(own) for group, own in groups.items()},
        average=macro(list(found.values())),
        totals=dict(totals or {}),
    )
