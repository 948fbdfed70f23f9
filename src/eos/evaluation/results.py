"""Results: the scores of an evaluation, in the ``results.json`` of its folder.

Each run's accuracies with standard errors, beside the full model's on the same questions. Read
without torch, which reports need not have.
"""

from collections.abc import Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from eos.config import Artifact, Frozen
from eos.errors import ConfigError
from eos.evaluation.estimates import (
    Score,
    macro,
    score,
    write_accuracy,
    write_difference,
    write_interval,
)
from eos.evaluation.totals import Total
from eos.sizes import Expected
from eos.tables import text_table

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]  # an optional package


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


class Results(Artifact):
    """The full model's row, then the plans'; accuracies and differences in points of 100.

    An accuracy is the mean of the task's metric. Visual tokens and costs are those of the first
    question's prompt; where images differ in size, plans keep the same fractions of each. Problems
    counts samples of the data that were not used, by kind; ``skipped.jsonl`` names them.
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
    problems: dict[str, int] = Field(default_factory=dict)

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
        return "\n".join([head, text_table(PRINTED, rows), note, *self._totals()])

    def _totals(self) -> list[str]:
        """Draw a table of the benchmark's own figures, if there are any."""
        names = list(self.rows[0].totals)
        rows = [
            [row.name, *(f"{x.value:.1f} ± {x.stderr:.1f}" for x in row.totals.values())]
            for row in self.rows
        ]
        return [text_table(["run", *names], rows)] if names else []


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


PRINTED = ("run", "final", "FLOPs", "accuracy", "difference", "95% interval")
WRITTEN = (write_accuracy, write_difference, write_interval)


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
