"""Study: one table's or figure's worth of rows, with the score of every question.

Any two rows of a study can be compared question by question from its file alone. Read without
torch, which reports need not have.
"""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from eos.config import Artifact, ProblemsError
from eos.errors import ConfigError
from eos.evaluation.estimates import Difference, macro, score
from eos.evaluation.results import FamilyInfo, ResultRow

FULL_ROW = "full"  # name and method of the full model's row
NUMBERS = re.compile(r"\[\s+([-+.\dEe]+(?:,\s+[-+.\dEe]+)*)\s+\]")


class StudyRow(ResultRow):
    """One run of a study.

    Attributes:
        name: unique in the study, such as ``sparsevlm-v2@64``.
        method: ``full``, a preset's name, ``eos`` for plans of the default search, or what else
            made the plan.
        searched: whether a search found it.
        factors: what the study varies, such as ``{"budget": 64}``.
        plan: as in ``plan.json``, without provenance; None for the full model.
        scores: of each question in order, in [0, 1], by family.
    """

    method: str
    searched: bool = False
    factors: dict[str, int | float | str] = Field(default_factory=dict)
    plan: dict[str, Any] | None
    scores: dict[str, tuple[int | float, ...]]


class Study(Artifact):
    """``studies/NAME.json``; the full model's row is among the rows.

    Attributes:
        labels: of the paper's tables and figures that it answers.
        environment: as in ``env.json``.
        commands: exact command lines that repeat it.
        note: what a reader of scores must know.
        limit: most questions of a family.
    """

    schema_: Literal["eos.study/1"] = Field(default="eos.study/1", alias="schema")
    name: str
    title: str
    labels: tuple[str, ...]
    backbone: str
    fingerprint: str
    version: str
    num_layers: int
    visual_tokens: int
    task: str
    note: str = ""
    split: str
    seed: int
    limit: int
    families: dict[str, FamilyInfo]
    environment: dict[str, Any]
    commands: tuple[str, ...]
    rows: tuple[StudyRow, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [row.name for row in self.rows]
        problems = [
            f"rows: expected different names, found {name!r} twice"
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
        if FULL_ROW not in names:
            problems.append(f"rows: expected the full model's row {FULL_ROW!r} among them")
        expected = {family: info.n for family, info in self.families.items()}
        problems += [
            f"rows.{row.name}.scores: expected as many as questions, {expected}; found {found}"
            for row in self.rows
            if (found := {family: len(own) for family, own in row.scores.items()}) != expected
        ]
        if problems:
            raise ProblemsError(problems)
        return self

    def row(self, name: str) -> StudyRow:
        """Find a row."""
        return {row.name: row for row in self.rows}[name]

    def to_json(self) -> str:
        """Write as indented JSON, lists of numbers on one line."""
        return compact_numbers(super().to_json())


def compact_numbers(text: str) -> str:
    """Put the lists of numbers in indented JSON on one line each.

    >>> compact_numbers('{"scores": [' + chr(10) + '  1,' + chr(10) + '  0' + chr(10) + ']}')
    '{"scores": [1,0]}'
    """
    return NUMBERS.sub(lambda found: "[" + "".join(found[1].split()) + "]", text)


def compare(
    own: StudyRow | Sequence[StudyRow],
    other: StudyRow | Sequence[StudyRow],
    families: Sequence[str] | None = None,
) -> Difference:
    """Compare rows question by question: the first's accuracy minus the second's, in points.

    Families, all or the named ones, count the same; low to high is the 95% interval. Of several
    rows, such as the plans of three seeds, the mean score of each question counts.
    """
    left, right = _mean_scores(own), _mean_scores(other)
    if families is not None:
        left, right = ({name: side[name] for name in families} for side in (left, right))
    counts = [{name: len(scores) for name, scores in side.items()} for side in (left, right)]
    if counts[0] != counts[1] or not left:
        raise ConfigError(
            f"expected rows with scores of the same questions, found {counts[0]} and {counts[1]}; "
            "compare rows of one study, or of studies with equal task, seed and limit"
        )
    found = macro([score(scores, right[name]) for name, scores in left.items()]).difference
    assert found is not None
    return found


def _mean_scores(rows: StudyRow | Sequence[StudyRow]) -> Mapping[str, Sequence[float]]:
    """Average the scores of each question over rows."""
    if isinstance(rows, StudyRow):
        return rows.scores
    return {
        family: [fmean(each) for each in zip(*(row.scores[family] for row in rows), strict=True)]
        for family in (rows[0].scores if rows else ())
    }
