"""Results: the scores of an evaluation, in the ``results.json`` of its folder.

Each run's accuracies with standard errors, beside the full model's on the same questions.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

from pydantic import Field

from eos.config import Artifact, Frozen
from eos.estimates import DIGITS
from eos.evaluation.estimates import Score, macro, score
from eos.evaluation.ledger import Ledger, Prediction
from eos.evaluation.settings import FULL, Settings
from eos.evaluation.tasks import Task
from eos.space.plan import Expected, Plan


class FamilyInfo(Frozen):
    """A family of questions: group, what it imitates, how many, and what guessing would give.

    The chance level is in points of 100; None if it is unknown.
    """

    group: str
    imitates: str
    n: int
    chance: float | None


class ResultRow(Frozen):
    """One run: what it costs, and how well it answers; groups and average are over families."""

    name: str
    cost: Expected
    families: dict[str, Score]
    groups: dict[str, Score]
    average: Score


class Results(Artifact):
    """The full model's row, then the plans'; accuracies and differences in points of 100.

    An accuracy is the mean of the task's metric. Visual tokens and costs are those of the first
    question's prompt; where images differ in size, plans keep the same fractions of each.
    """

    schema_: Literal["eos.results/1"] = Field(default="eos.results/1", alias="schema")
    backbone: str
    fingerprint: str
    num_layers: int
    visual_tokens: int
    task: str
    note: str
    split: str
    seed: int
    blank: bool
    families: dict[str, FamilyInfo]
    rows: tuple[ResultRow, ...]

    def row(self, name: str) -> ResultRow:
        """Find a run's row."""
        return {row.name: row for row in self.rows}[name]


def summarise(settings: Settings, task: Task, ledger: Ledger, *, unreduced: Plan) -> Results:
    """Score all runs that have answered every question; ``unreduced`` has the full model's cost."""
    counts = task.counts(settings.split, settings.limit)
    answered = {run: _answered(counts, ledger, run) for run in settings.runs}
    whole = {run: found for run, found in answered.items() if found is not None}
    full = whole[FULL]
    families = {
        name: FamilyInfo(
            group=task.families[name].group,
            imitates=task.families[name].imitates,
            n=len(full[name]),
            chance=_chance(full[name]),
        )
        for name in settings.families
    }
    rows = [
        _row(run, settings.runs[run] or unreduced, found, full=full, families=families)
        for run, found in whole.items()
    ]
    return Results(
        backbone=settings.backbone,
        fingerprint=settings.fingerprint,
        num_layers=unreduced.num_layers,
        visual_tokens=unreduced.visual_tokens,
        task=task.name,
        note=task.note,
        split=settings.split,
        seed=settings.seed,
        blank=settings.blank,
        families=families,
        rows=rows,
    )


def _answered(
    counts: Mapping[str, int], ledger: Ledger, run: str
) -> dict[str, list[Prediction]] | None:
    """A run's predictions by family in the order of the questions; None if some are missing."""
    found = {}
    for family, count in counts.items():
        own = ledger.of(run, family)
        if any(number not in own for number in range(count)):
            return None
        found[family] = [own[number] for number in range(count)]
    return found


def _chance(predictions: Sequence[Prediction]) -> float | None:
    known = [p.chance for p in predictions if p.chance is not None]
    return round(100 * fmean(known), DIGITS) if len(known) == len(predictions) else None


def _row(
    run: str,
    plan: Plan,
    found: Mapping[str, list[Prediction]],
    *,
    full: Mapping[str, list[Prediction]],
    families: Mapping[str, FamilyInfo],
) -> ResultRow:
    scores = {}
    for family, own in found.items():
        reference = None if run == FULL else [p.score for p in full[family]]
        scores[family] = score([p.score for p in own], reference)
    groups: dict[str, list[Score]] = {}
    for family, info in families.items():
        groups.setdefault(info.group, []).append(scores[family])
    return ResultRow(
        name=run,
        cost=plan.expected,
        families=scores,
        groups={name: macro(own) for name, own in groups.items()},
        average=macro(list(scores.values())),
    )
