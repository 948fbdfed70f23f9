"""Estimates: accuracies and paired differences in points of 100, with their standard errors.

A difference is taken question by question: what is easy or hard for both models cancels out, so
its standard error is far smaller than that of either accuracy.
"""

from collections.abc import Sequence
from statistics import NormalDist

from pydantic import Field

from eos.config import Frozen
from eos.estimates import DIGITS, Estimate, average, estimate

Z95 = NormalDist().inv_cdf(0.975)


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


def score(scores: Sequence[float], full: Sequence[float] | None = None) -> Score:
    """Estimate the mean of scores in [0, 1], and its difference to the full model's, in order."""
    found = estimate([100 * float(own) for own in scores])
    paired = None
    if full is not None:
        both = zip(scores, full, strict=True)
        paired = difference(estimate([100 * (float(own) - float(other)) for own, other in both]))
    return Score(accuracy=found.mean, stderr=found.stderr, n=len(scores), difference=paired)


def macro(scores: Sequence[Score]) -> Score:
    """Average over families, each counting the same; their questions are independent."""
    found = average([Estimate(mean=own.accuracy, stderr=own.stderr) for own in scores])
    paired = [
        Estimate(mean=own.difference.points, stderr=own.difference.stderr)
        for own in scores
        if own.difference is not None
    ]
    return Score(
        accuracy=round(found.mean, DIGITS),
        stderr=round(found.stderr, DIGITS),
        n=sum(own.n for own in scores),
        difference=difference(average(paired)) if paired else None,
    )


def write_accuracy(score: Score) -> str:
    """Write an accuracy and its standard error.

    >>> write_accuracy(Score(accuracy=92.06, stderr=0.4, n=100))
    '92.1 ± 0.4'
    """
    return f"{score.accuracy:.1f} ± {score.stderr:.1f}"


def write_difference(score: Score) -> str:
    """Write a difference to the full model and its standard error; a dash for the model itself."""
    paired = score.difference
    return "-" if paired is None else f"{signed(paired.points)} ± {paired.stderr:.1f}"


def write_interval(score: Score) -> str:
    """Write the 95% interval of a difference; a dash for the full model."""
    paired = score.difference
    return "-" if paired is None else f"{signed(paired.low)} to {signed(paired.high)}"


def signed(points: float) -> str:
    """Write points with their sign.

    >>> signed(-0.46), signed(-0.04)
    ('−0.5', '0.0')
    """
    rounded = round(points, 1)  # first: -0.04 has no sign
    return f"{rounded:+.1f}".replace("-", "−") if rounded else "0.0"


def difference(found: Estimate) -> Difference:
    """Give a difference with its 95% interval."""
    error = round(found.stderr, DIGITS)
    return Difference(
        points=round(found.mean, DIGITS),
        stderr=error,
        low=round(found.mean - Z95 * error, DIGITS),
        high=round(found.mean + Z95 * error, DIGITS),
    )
