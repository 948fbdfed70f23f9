"""Accuracies, paired differences and averages, against numbers worked by hand."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.estimates import Estimate, average, estimate, stderr
from eos.evaluation.estimates import Z95, macro, score

YES, NO = True, False


def test_accuracy_and_standard_error_by_hand():
    found = score([YES, YES, YES, NO])
    assert found.accuracy == 75.0
    # squares of deviations: 3 · 25² + 75² = 7500; over 3: 2500; root over root of 4: 25
    assert found.stderr == 25.0
    assert found.n == 4
    assert found.difference is None


def test_means_and_their_errors_by_hand():
    # squares of deviations: 1 + 0 + 1; over 2: 1; root over root of 3
    assert estimate([1.0, 2.0, 3.0]) == Estimate(mean=2.0, stderr=round(1 / sqrt(3), 6))
    assert stderr([1.0, 2.0, 3.0]) == pytest.approx(1 / sqrt(3), abs=1e-12)
    assert estimate([5.0]) == Estimate(mean=5.0, stderr=0.0)
    both = average([Estimate(mean=1.0, stderr=0.3), Estimate(mean=3.0, stderr=0.4)])
    assert both.mean == 2.0
    assert both.stderr == pytest.approx(0.25)  # root of 0.09 + 0.16, over two


def test_soft_scores_by_hand():
    found = score([1.0, 0.5, 0.0], [0.5, 0.5, 0.5])
    assert found.accuracy == 50.0
    assert found.stderr == pytest.approx(50 / sqrt(3), abs=1e-5)
    assert (found.difference.points, found.difference.stderr) == (0.0, found.stderr)


def test_the_difference_is_paired():
    full, own = [YES, YES, YES, NO], [YES, NO, YES, NO]
    paired = score(own, full).difference
    # differences 0, -100, 0, 0: mean -25; squares 3 · 25² + 75² again
    assert paired.points == -25.0
    assert paired.stderr == 25.0
    assert paired.low == pytest.approx(-25 - 1.959964 * 25, abs=1e-4)
    assert paired.high == pytest.approx(-25 + 1.959964 * 25, abs=1e-4)
    # unpaired errors would add: the same accuracies, other questions, another error
    apart = score([NO, YES, NO, YES], full).difference
    assert apart.points == -25.0
    assert apart.stderr > 40


def test_equal_answers_differ_by_exactly_nothing():
    answers = [YES, NO, YES]
    paired = score(answers, answers).difference
    assert (paired.points, paired.stderr, paired.low, paired.high) == (0, 0, 0, 0)


def test_answers_to_different_numbers_of_questions_cannot_be_paired():
    with pytest.raises(ValueError, match="argument 2"):
        score([YES, NO, YES], [YES, NO])


def test_the_average_over_families_by_hand():
    full = [[YES, YES, YES, NO], [NO, NO, YES, YES]]
    own = [[YES, NO, YES, NO], [NO, NO, YES, YES]]
    scores = [score(a, b) for a, b in zip(own, full, strict=True)]
    average = macro(scores)
    assert average.accuracy == 50.0
    assert average.n == 8
    # each family: two of four, squares 4 · 50² = 10⁴ over 3 over 4
    each = sqrt(1e4 / 3 / 4)
    assert average.stderr == pytest.approx(sqrt(2 * each**2) / 2, abs=1e-5)
    assert average.difference.points == -12.5
    assert average.difference.stderr == pytest.approx(12.5)  # 25 and 0, over two
    assert average.difference.high == pytest.approx(-12.5 + Z95 * 12.5, abs=1e-5)
    assert macro([score(a) for a in own]).difference is None


def test_families_count_the_same_whatever_their_size():
    assert macro([score([YES] * 10), score([NO, NO])]).accuracy == 50.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_the_difference_is_that_of_the_accuracies(pairs):
    own, full = zip(*pairs, strict=True)
    found = score(own, full)
    assert found.difference.points == pytest.approx(found.accuracy - score(full).accuracy, abs=1e-5)
    n, share = len(own), sum(own) / len(own)
    assert found.stderr == pytest.approx(100 * sqrt(share * (1 - share) / (n - 1)), abs=1e-5)
