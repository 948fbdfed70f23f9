"""Estimates: a mean of samples with its standard error."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

from eos.config import Frozen

DIGITS = 6  # of estimates in files


class Estimate(Frozen):
    """A mean with its standard error."""

    mean: float
    stderr: float


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error of independent values, rounded as files hold them."""
    return Estimate(mean=round(fmean(values), DIGITS), stderr=round(stderr(values), DIGITS))


def stderr(values: Sequence[float]) -> float:
    """Standard error of the mean, variance with n - 1; unknown for a single value and given as 0.

    >>> stderr([100.0, 100.0, 100.0, 0.0])
    25.0
    """
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def average(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of independent estimates that count the same whatever their numbers of samples."""
    total = sqrt(sum(x.stderr**2 for x in estimates))
    return Estimate(mean=fmean(x.mean for x in estimates), stderr=total / len(estimates))
