"""Results: the scores of an evaluation, in the ``results.json`` of its folder.

Each run's accuracies with standard errors, beside the full model's on the same questions.
"""

from collections.abc import Mapping, Sequence
from math import nan
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from eos.config import Artifact
from eos.errors import ConfigError
from eos.estimates import DIGITS
from eos.evaluation.estimates import Score, write_accuracy, write_difference, write_interval
from eos.evaluation.ledger import Ledger, Prediction
from eos.evaluation.rows import FamilyInfo, ResultRow, make_row
from eos.evaluation.settings import FULL, Settings
from eos.evaluation.tasks import Task
from eos.space.plan import Plan
from eos.tables import text_table

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]  # an optional package


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

    def to_dataframe(self, *, families: bool = False) -> "pandas.DataFrame":
        """Give a pandas table: a row a run, or a row for each run and family.

        Accuracies and differences are in points of 100; the full model has no difference (NaN).
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError(
                "expected the package pandas for a data frame, found none; install it with "
                "`pip install pandas`"
            ) from None
        if not families:
            return pandas.DataFrame([_flat(row, row.average) for row in self.rows])
        found = [
            {"run": row.name, "family": name, **_flat(row, own)}
            for row in self.rows
            for name, own in row.families.items()
        ]
        return pandas.DataFrame(found)

    def __str__(self) -> str:
        """Draw a plain table: a row a run with its cost, accuracy and difference."""
        shown = ", blank images" if self.blank else ""
        head = (
            f"{self.backbone}, {self.visual_tokens} visual tokens, {self.num_layers} layers; task "
            f"{self.task}, split {self.split}, seed {self.seed}{shown}"
        )
        rows = [
            [
                row.name,
                str(row.cost.final_tokens),
                f"{row.cost.flops_ratio:.3f}",
                *(write(row.average) for write in WRITTEN),
            ]
            for row in self.rows
        ]
        note = "accuracy in %, difference to full in points, each ± standard error"
        return "\n".join([head, text_table(PRINTED, rows), note])


PRINTED = ("run", "final", "FLOPs", "accuracy", "difference", "95% interval")
WRITTEN = (write_accuracy, write_difference, write_interval)


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
        make_row(
            run,
            (settings.runs[run] or unreduced).expected,
            scores=_scores(found),
            full=None if run == FULL else _scores(full),
            families=families,
        )
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


def _flat(row: ResultRow, own: Score) -> dict[str, Any]:
    """Write a run's cost and one of its scores as the cells of a row."""
    paired = own.difference
    return {
        "run": row.name,
        **row.cost.model_dump(exclude={"text_tokens", "flops_formula"}),
        "accuracy": own.accuracy,
        "stderr": own.stderr,
        "n": own.n,
        "difference": nan if paired is None else paired.points,
        "difference_stderr": nan if paired is None else paired.stderr,
        "low": nan if paired is None else paired.low,
        "high": nan if paired is None else paired.high,
    }


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


def _scores(found: Mapping[str, Sequence[Prediction]]) -> dict[str, list[float]]:
    return {family: [p.score for p in own] for family, own in found.items()}
