"""Totals: figures of a whole benchmark that are no mean of scores, with standard errors.

A figure is a function of sums over questions: F1 of counts, MME's total of four sums in each
category. Its standard error is that of the jackknife: leave out one cluster of questions at a time,
such as those on one image, and see how the figure varies. For a mean of independent questions this
is the usual s/√n, exactly; a difference between two models is paired, cluster by cluster.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from eos.config import Frozen
from eos.estimates import DIGITS, Estimate
from eos.evaluation.estimates import Difference, difference

Sums: TypeAlias = NDArray[np.float64]  # [..., families, columns]
# of sums and the families' names, one value for each leading index
Figure: TypeAlias = Callable[[Sums, Sequence[str]], Sums]


class Total(Frozen):
    """A figure of a benchmark in its own points, its standard error, the difference to full."""

    value: float
    stderr: float
    difference: Difference | None = None


def sums_of(columns: Mapping[tuple[str, str], Sequence[float]], families: Sequence[str]) -> Sums:
    """Lay out columns by cluster and family; zeros where a cluster has none of a family."""
    clusters = {
        cluster: place for place, cluster in enumerate(dict.fromkeys(c for c, _ in columns))
    }
    width = len(next(iter(columns.values())))
    found = np.zeros((len(clusters), len(families), width))
    for (cluster, family), values in columns.items():
        found[clusters[cluster], families.index(family)] = values
    return found


def totals(
    figures: Mapping[str, Figure], families: Sequence[str], own: Sums, full: Sums | None = None
) -> dict[str, Total]:
    """Estimate figures of sums by cluster, and their paired differences to the full model's."""
    found = {}
    for name, figure in figures.items():
        value, left_out = _evaluated(figure, families, own)
        paired = None
        if full is not None:
            other, others = _evaluated(figure, families, full)
            paired = difference(Estimate(mean=value - other, stderr=jackknife(left_out - others)))
        found[name] = Total(
            value=round(value, DIGITS),
            stderr=round(jackknife(left_out), DIGITS),
            difference=paired,
        )
    return found


def jackknife(left_out: Sums) -> float:
    """Standard error from the values of a figure without each cluster in turn.

    >>> scores = np.array([100.0, 100.0, 100.0, 0.0])
    >>> round(jackknife((scores.sum() - scores) / 3), 6)
    25.0
    """
    count = len(left_out)
    spread = float(((left_out - left_out.mean()) ** 2).sum())
    return sqrt(spread * (count - 1) / count)


def ratio(above: Sums, below: Sums) -> Sums:
    """Divide; 0 where there is nothing to divide by."""
    return np.divide(above, below, out=np.zeros_like(above), where=below != 0)


def mean(column: int = 0, count: int = 1) -> Figure:
    """Percentage of a column over all families together."""
    return lambda sums, _: 100 * ratio(sums[..., column].sum(-1), sums[..., count].sum(-1))


def family_mean(column: int = 0, count: int = 1) -> Figure:
    """Percentage of a column in each family, averaged over families that have questions."""

    def figure(sums: Sums, _: Sequence[str]) -> Sums:
        each = 100 * ratio(sums[..., column], sums[..., count])
        return ratio(each.sum(-1), (sums[..., count] > 0).sum(-1).astype(float))

    return figure


def family_sum(names: Collection[str], *columns: tuple[int, int]) -> Figure:
    """Percentages of columns, each over a count, added up over columns and families."""

    def figure(sums: Sums, families: Sequence[str]) -> Sums:
        chosen = np.array([family in names for family in families])
        each = [ratio(sums[..., column], sums[..., count]) for column, count in columns]
        return np.asarray(100 * (sum(each) * chosen).sum(-1))

    return figure


def _evaluated(figure: Figure, families: Sequence[str], sums: Sums) -> tuple[float, Sums]:
    whole = sums.sum(0)
    return float(figure(whole, families)), figure(whole - sums, families)
