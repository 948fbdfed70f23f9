"""Agreement: how well one set of slopes predicts another, in order, sign and size."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp, inf, log
from random import Random
from statistics import fmean, stdev
from typing import TypeAlias

import torch

from eos.config import Frozen
from eos.estimates import Estimate

DRAWS = 200  # of the bootstrap
QUANTILES = (0.16, 0.5, 0.84)  # the median, and a normal's standard deviation to either side

Pieces: TypeAlias = Sequence[Sequence[float]]  # numbers by piece and cell


class Agreement(Frozen):
    """How a surrogate gradient agrees with differences, over layers.

    Attributes:
        gradient: of each layer; the error is that of batches.
        rank: Spearman's correlation,
        rank_stderr: its standard error, by resampling (bootstrap).
        signs: share of layers with the same sign.
        certain_signs: the same among layers whose difference exceeds two standard errors; None if
            there is none.
        total: the sum of gradients over that of differences; None if unknown.
        total_stderr: its standard error, likewise: half of the 16th to 84th percentile.
    """

    gradient: list[Estimate]
    rank: float
    rank_stderr: float
    signs: float
    certain_signs: float | None
    total: float | None = None
    total_stderr: float = 0.0


class Pooled(Frozen):
    """How a surrogate agrees with differences, over layers and keep fractions together.

    Sizes are those of cells, a layer at a fraction, whose difference exceeds two standard errors.

    Attributes:
        passes: forward passes it takes at one site, a backward pass being two.
        rank: Spearman's correlation,
        rank_stderr: its standard error, by resampling (bootstrap).
        certain: how many cells there are.
        wrong: share of them where the surrogate has the wrong sign, and so no size; None if there
            are no cells.
        ratio: median of surrogate over difference among the others; None if there are none.
        ratio_low, ratio_high: its 16th and 84th percentiles over cells.
    """

    passes: int
    rank: float
    rank_stderr: float
    certain: int
    wrong: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


def agreement(
    gradients: Sequence[Estimate],
    differences: Sequence[Estimate],
    *,
    rank_stderr: float = 0.0,
    total_stderr: float = 0.0,
) -> Agreement:
    """Compare surrogate gradients with differences over layers."""
    own, true = [x.mean for x in gradients], [x.mean for x in differences]
    same = [(a > 0) == (b > 0) for a, b in zip(own, true, strict=True)]
    sure = [hit for hit, x in zip(same, differences, strict=True) if certain(x)]
    return Agreement(
        gradient=list(gradients),
        rank=round(rank_correlation(own, true), 4),
        rank_stderr=round(rank_stderr, 4),
        signs=round(fmean(same), 4),
        certain_signs=round(fmean(sure), 4) if sure else None,
        total=round(total_ratio(own, true), 4) if sum(true) else None,
        total_stderr=round(total_stderr, 4),
    )


def pooled(
    gradients: Sequence[Estimate],
    differences: Sequence[Estimate],
    *,
    passes: int,
    rank_stderr: float = 0.0,
) -> Pooled:
    """Compare surrogate gradients with differences over all cells, in order and in size.

    >>> own, true = ([Estimate(mean=x, stderr=0.1) for x in xs] for xs in ([2, 4, -1], [1, 2, 3]))
    >>> found = pooled(own, true, passes=3)
    >>> found.ratio, round(found.wrong, 2)
    (2.0, 0.33)
    """
    cells = [(a.mean, b.mean) for a, b in zip(gradients, differences, strict=True) if certain(b)]
    ratios = [a / b for a, b in cells if a * b > 0]
    low, middle, high = (round(x, 4) for x in quantiles(ratios)) if ratios else (None,) * 3
    ranks = rank_correlation([x.mean for x in gradients], [x.mean for x in differences])
    return Pooled(
        passes=passes,
        rank=round(ranks, 4),
        rank_stderr=round(rank_stderr, 4),
        certain=len(cells),
        wrong=round(1 - len(ratios) / len(cells), 4) if cells else None,
        ratio=middle,
        ratio_low=low,
        ratio_high=high,
    )


def quantiles(ratios: Sequence[float]) -> list[float]:
    """Find the ``QUANTILES`` of positive numbers, interpolated between their logarithms."""
    logs = torch.tensor([log(x) for x in ratios], dtype=torch.float64)
    at = torch.tensor(QUANTILES, dtype=torch.float64)
    return [exp(x) for x in torch.quantile(logs, at).tolist()]


def certain(difference: Estimate) -> bool:
    """Whether a difference exceeds two standard errors."""
    return abs(difference.mean) > 2 * difference.stderr


def rank_error(first: Pieces, second: Pieces, sizes: Sequence[int]) -> float:
    """Standard error of the rank correlation of two means over pieces."""
    found = redrawn(rank_correlation, first, second, sizes)
    return stdev(found) if found else 0.0


def total_error(first: Pieces, second: Pieces, sizes: Sequence[int]) -> float:
    """Standard error of the ratio of sums of two means over pieces.

    By percentiles: where the denominator may vanish, a ratio has no standard deviation.
    """
    found = sorted(redrawn(total_ratio, first, second, sizes))
    if not found:
        return 0.0
    low, high = (found[round(at * (len(found) - 1))] for at in (QUANTILES[0], QUANTILES[-1]))
    return (high - low) / 2


def redrawn(
    statistic: Callable[[Sequence[float], Sequence[float]], float],
    first: Pieces,
    second: Pieces,
    sizes: Sequence[int],
) -> list[float]:
    """Resample pieces with replacement and compute a statistic of two means (bootstrap).

    Args:
        statistic: of two sequences over cells.
        first: by piece and cell.
        second: likewise.
        sizes: samples of each piece.

    Returns:
        The statistic of each of ``DRAWS`` draws; nothing if there is one piece only.
    """
    if len(sizes) < 2:
        return []
    chance, found = Random(0), []
    for _ in range(DRAWS):
        drawn = chance.choices(range(len(sizes)), k=len(sizes))
        counts = [sizes[i] for i in drawn]
        one, other = (weighted_mean([x[i] for i in drawn], counts) for x in (first, second))
        found.append(statistic(one, other))
    return found


def total_ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """Divide sums; infinite if the second is 0."""
    return sum(first) / sum(second) if sum(second) else inf


def weighted_mean(pieces: Sequence[Sequence[float]], sizes: Sequence[int]) -> list[float]:
    """Average over pieces, each as heavy as it has samples; cell by cell."""
    total = sum(sizes)
    cells = zip(*pieces, strict=True)
    return [sum(x * n for x, n in zip(own, sizes, strict=True)) / total for own in cells]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's ρ; ties share their mean rank. 0 if either does not vary.

    >>> rank_correlation([1, 2, 3], [10, 20, 30]), rank_correlation([1, 2, 3], [3, 2, 1])
    (1.0, -1.0)
    """
    a, b = (torch.tensor(_ranks(x), dtype=torch.float64) for x in (first, second))
    a, b = a - a.mean(), b - b.mean()
    scale = float((a.square().sum() * b.square().sum()).sqrt())
    return float((a * b).sum()) / scale if scale else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    borders = [0, *(i for i, (a, b) in enumerate(pairwise(order), start=1) if a != b), len(order)]
    mean = {order[start]: (start + end - 1) / 2 for start, end in pairwise(borders)}
    return [mean[value] for value in values]
