"""`eos verify`: the corners hold, and a broken operator does not pass."""

import pytest
import torch

from eos.evaluation import verify
from eos.evaluation.verification import Verification
from eos.operator import corners


@pytest.fixture(scope="module")
def verification():
    return verify.verify()


def test_everything_holds(verification):
    assert verification.passed
    assert {check.corner for check in verification.limits} == set(corners.CORNERS)
    assert (
        sum(check.cases for check in verification.limits) + verification.near_ties == 4 * 5 * 4 * 5
    )


def test_listing_3_prints_what_the_paper_prints(verification):
    found = {check.corner: check.discrepancy for check in verification.listing}
    assert found["prune"] == 0.0
    assert found["reweight"] <= 5e-7  # 0 where the matrix products round alike
    assert found["merge"] <= 2e-6
    assert found["pool"] <= 2e-6


def test_listing_3_draws_the_tokens_of_its_seed():
    torch.manual_seed(42)
    expected = torch.randn(8, 64), torch.randn(16, 64), torch.randn(16)
    assert all(map(torch.equal, verify.draw((8, 16, 64), 42), expected))


def test_the_finite_stand_in_is_not_the_limit(verification):
    small, large = verification.stand_ins
    assert 0.15 < small.share_above < 0.25
    assert large.share_above == 1.0


@pytest.mark.parametrize("corner", ["merge", "pool", "reweight"])
def test_a_wrong_operator_does_not_pass(monkeypatch, corner):
    wrong = verify.LIMITS[corner]._replace(nu=0.01)
    monkeypatch.setitem(verify.LIMITS, corner, wrong)
    checks, _ = verify.check_limits()
    assert {check.corner for check in checks if not check.passed} == {corner}


def test_nan_does_not_pass():
    shown = {"corner": "merge", "dtype": "float32", "cases": 1, "tolerance": 1.0}
    assert not verify.Check(**shown, discrepancy=float("nan")).passed
    assert verify.Check(**shown, discrepancy=0.5).passed


def test_the_file_is_read_back(verification, tmp_path):
    verification.save(tmp_path / "verify.json")
    assert Verification.load(tmp_path / "verify.json") == verification
    broken = verify.Check(
        corner="merge", dtype="float32", cases=1, discrepancy=float("nan"), tolerance=1.0
    )
    changed = verification.model_copy(update={"listing": (broken,)})
    changed.save(tmp_path / "verify.json")
    assert not Verification.load(tmp_path / "verify.json").passed
