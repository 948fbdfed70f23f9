"""Results: what came out of an evaluation, in the ``results.json`` of its folder.

Each run's accuracies with standard errors, beside the full model's on the same questions.
"""

from collections.abc import Mapping
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


class Asked(Frozen):
    """A family of questions: group, what it imitates, how many, and what guessing would give."""

    group: str
    imitates: str
    n: int
    chance: float


class Row(Frozen):
    """One run: what it costs, and how well it answers; groups and average are over families."""

    name: str
    cost: Expected
    families: dict[str, Score]
    groups: dict[str, Score]
    average: Score


class Results(Artifact):
    """The full model's row, then the plans'; accuracies and differences in points of 100."""

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
    families: dict[str, Asked]
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row:
        """Find a run's row."""
        return {row.name: row for row in self.rows}[name]


def summarise(settings: Settings, task: Task, ledger: Ledger, *, unreduced: Plan) -> Results:
    """Score all runs that have answered every question; ``unreduced`` says what full costs."""
    answered = {run: _answered(settings, ledger, run) for run in settings.runs}
    whole = {run: found for run, found in answered.items() if found is not None}
    full = whole[FULL]
    families = {
        name: Asked(
            group=task.families[name].group,
            imitates=task.families[name].imitates,
            n=len(full[name]),
            chance=round(100 * fmean(p.chance for p in full[name]), DIGITS),
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


def _answered(settings: Settings, ledger: Ledger, run: str) -> dict[str, list[Prediction]] | None:
    """A run's predictions by family in the order of the questions; None if some are missing."""
    found = {}
    for family in settings.families:
        own = ledger.of(run, family)
        if any(number not in own for number in range(settings.limit)):
            return None
        found[family] = [own[number] for number in range(settings.limit)]
    return found


def _row(
    run: str,
    plan: Plan,
    found: Mapping[str, list[Prediction]],
    *,
    full: Mapping[str, list[Prediction]],
    families: Mapping[str, Asked],
) -> Row:
    scores = {}
    for family, own in found.items():
        reference = None if run == FULL else [p.correct for p in full[family]]
        scores[family] = score([p.correct for p in own], reference)
    groups: dict[str, list[Score]] = {}
    for family, asked in families.items():
        groups.setdefault(asked.group, []).append(scores[family])
    return Row(
        name=run,
        cost=plan.expected,
        families=scores,
        groups={name: macro(own) for name, own in groups.items()},
        average=macro(list(scores.values())),
    )
