"""Results: the scores of an evaluation, in the ``results.json`` of its folder.

Each run's accuracies with standard errors, beside the full model's on the same questions. Read
without torch, which reports need not have.
"""

from math import nan
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from eos.config import Artifact
from eos.errors import ConfigError
from eos.evaluation.estimates import Score, write_accuracy, write_difference, write_interval
from eos.evaluation.rows import FamilyInfo, ResultRow
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
