"""Overall: several benchmarks' figures in one row a run, and the paper's overall average."""

from collections.abc import Mapping
from math import sqrt
from statistics import fmean
from typing import Literal

from pydantic import Field

from eos.config import Artifact, Frozen
from eos.errors import ConfigError
from eos.estimates import DIGITS, Estimate
from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.results import Results
from eos.evaluation.totals import Total
from eos.sizes import Expected


class OverallRow(Frozen):
    """One run: its cost, each benchmark's figure, and their average if there are all twelve."""

    name: str
    cost: Expected
    scores: dict[str, Total]
    average: Estimate | None


class Overall(Artifact):
    """Figures of several benchmarks, the full model first; each by name, in the paper's order.

    Costs are those of the first benchmark's first prompt. Questions and problems are counted by
    benchmark.
    """

    schema_: Literal["eos.overall/1"] = Field(default="eos.overall/1", alias="schema")
    backbone: str
    fingerprint: str
    num_layers: int
    visual_tokens: int
    questions: dict[str, int]
    problems: dict[str, dict[str, int]]
    rows: tuple[OverallRow, ...]

    def row(self, name: str) -> OverallRow:
        """Find a run's row."""
        return {row.name: row for row in self.rows}[name]


def overall_of(results: Mapping[str, Results]) -> Overall:
    """Put together the results of benchmarks, by name; runs that have answered them all."""
    ordered = {name: results[name] for name in BENCHMARKS if name in results}
    if not ordered:
        raise ConfigError(f"expected results of {', '.join(BENCHMARKS)}; found {list(results)}")
    first = next(iter(ordered.values()))
    tables = {name: {row.name: row for row in own.rows} for name, own in ordered.items()}
    rows = []
    for run in first.rows:
        if all(run.name in table for table in tables.values()):
            found = {name: tables[name][run.name].totals for name in ordered}
            scores = {name: next(iter(totals.values())) for name, totals in found.items()}
            average = paper_average(scores)
            rows.append(OverallRow(name=run.name, cost=run.cost, scores=scores, average=average))
    return Overall(
        backbone=first.backbone,
        fingerprint=first.fingerprint,
        num_layers=first.num_layers,
        visual_tokens=first.visual_tokens,
        questions={name: sum(x.n for x in own.families.values()) for name, own in ordered.items()},
        problems={name: own.problems for name, own in ordered.items()},
        rows=tuple(rows),
    )


def paper_average(scores: Mapping[str, Total]) -> Estimate | None:
    """Mean of the twelve benchmarks with MME divided by 28; None if one is missing.

    The paper does not define it; this reproduces all averages of its main table.
    """
    if any(name not in scores for name in BENCHMARKS):
        return None
    scaled = [(scores[name], own.points) for name, own in BENCHMARKS.items()]
    error = sqrt(sum((score.stderr / points) ** 2 for score, points in scaled)) / len(scaled)
    mean = fmean(score.value / points for score, points in scaled)
    return Estimate(mean=round(mean, DIGITS), stderr=round(error, DIGITS))
