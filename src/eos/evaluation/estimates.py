"""Estimates: accuracies and paired differences in points of 100, with their standard errors.

A difference is taken question by question: what both models find easy or hard cancels out, so it
is known far better than either accuracy.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev

from pydantic import Field

from eos.config import Frozen

Z95 = NormalDist().inv_cdf(0.975)
DIGITS = 6  # of points in files


class Difference(Frozen):
    """Accuracy minus the full model's on the same questions, in points; low to high is 95%."""

    points: float
    stderr: float
    low: float
    high: float


class Score(Frozen):
    """Accuracy in points, its standard error, how many questions, the difference to full."""

    accuracy: float
    stderr: float
    n: int
    difference: Difference | None = Field(default=None)


def score(correct: Sequence[bool], full: Sequence[bool] | None = None) -> Score:
    """Estimate an accuracy, and its difference to the full model's answers in the same order."""
    points, error = _mean(correct)
    paired = None
    if full is not None:
        both = zip(correct, full, strict=True)
        paired = _difference(*_mean([int(own) - int(other) for own, other in both]))
    return Score(accuracy=points, stderr=error, n=len(correct), difference=paired)


def macro(scores: Sequence[Score]) -> Score:
    """Average over families, each counting the same; their questions are independent."""
    paired = [found.difference for found in scores if found.difference is not None]
    return Score(
        accuracy=round(fmean(found.accuracy for found in scores), DIGITS),
        stderr=_combined([found.stderr for found in scores]),
        n=sum(found.n for found in scores),
        difference=None
        if not paired
        else _difference(
            fmean(found.points for found in paired), _combined([found.stderr for found in paired])
        ),
    )


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error in points; the variance of a sample, with n - 1."""
    points = [100 * float(value) for value in values]
    return round(fmean(points), DIGITS), round(stdev(points) / sqrt(len(points)), DIGITS)


def _combined(errors: Sequence[float]) -> float:
    return round(sqrt(sum(error**2 for error in errors)) / len(errors), DIGITS)


def _difference(points: float, error: float) -> Difference:
    low, high = points - Z95 * error, points + Z95 * error
    return Difference(
        points=round(points, DIGITS),
        stderr=error,
        low=round(low, DIGITS),
        high=round(high, DIGITS),
    )
