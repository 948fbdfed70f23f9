"""Regime naming."""

from itertools import product
from math import inf

import pytest

from eos import Theta, regime
from eos.evaluation.verify import LIMITS, STAND_INS
from eos.operator.regime import TOLERANCE


@pytest.mark.parametrize("corner", LIMITS)
def test_corners_are_named_at_their_limits_and_stand_ins(corner):
    assert regime(*LIMITS[corner]).name == corner
    assert regime(*STAND_INS[corner]).name == corner
    assert regime(*LIMITS[corner]).distance == 0.0


@pytest.mark.parametrize(
    ("omega", "name", "nearest"),
    [
        ((0.000, 0.50, 0.00, 0.00, 0.0), "prune", "prune"),
        ((0.083, 0.22, 0.10, 0.00, 0.0), "hybrid", "prune"),
        ((0.020, 0.50, 0.00, 0.02, 0.02), "prune", "prune"),
        ((0.000, 0.50, 0.00, 0.30, 1.0), "reweight", "reweight"),
        ((0.200, 0.50, 0.00, 0.90, 0.0), "hybrid", "reweight"),
        ((0.900, 0.10, -0.9, 0.00, 0.0), "hybrid", "merge"),
        ((0.970, 0.01, -1.0, 0.00, 1.0), "merge", "merge"),
        ((0.900, 9.00, -1.0, 0.00, 0.0), "hybrid", "pool"),
        ((1.000, 50.0, -1.0, 0.00, 0.0), "pool", "pool"),
        ((1.000, 0.00, 0.90, 0.00, 0.0), "hybrid", "merge"),
    ],
)
def test_points_are_named_as_a_reader_would(omega, name, nearest):
    found = regime(*omega)
    assert (found.name, found.nearest) == (name, nearest)
    assert str(found) == (name if name != "hybrid" else f"hybrid (near {nearest})")


def test_norm_preservation_does_not_change_the_name():
    for omega in LIMITS.values():
        assert regime(*omega) == regime(*omega._replace(nu=1.0))


def test_both_starts_of_a_search():
    uniform = Theta.start(32, visual_tokens=576, budget=64)
    prune = Theta.start(32, visual_tokens=576, budget=64, init="prune")
    assert regime(*(float(x.detach()) for x in uniform.omega(0))).name == "hybrid"
    assert regime(*(float(x.detach()) for x in prune.omega(0))).name == "prune"


def test_a_point_is_hybrid_exactly_if_it_is_away_from_every_corner():
    grid = [0.0, 0.02, 0.3, 1.0]
    for gamma, tau, rho in product(grid, [0.0, 0.02, 0.5, 100.0, inf], grid):
        found = regime(gamma, tau, -inf, rho)
        assert (found.name == "hybrid") == (found.distance > 2 * TOLERANCE)
        assert found.name in (found.nearest, "hybrid")
