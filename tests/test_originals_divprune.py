"""DivPrune against recorded runs of the original."""

import json

import numpy as np
import pytest
import torch

from eos import ConfigError
from eos.methods.divprune import max_min_order
from tests.conftest import golden_cases

CASES = golden_cases("divprune_*")


def load(path):
    arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    return arrays, json.loads(path.with_suffix(".json").read_text())["parameters"]


@pytest.mark.parametrize("path", CASES)
def test_recorded(path):
    arrays, about = load(path)
    assert round(about["ratio"] * len(arrays["x"])) == about["k"]
    order = max_min_order(arrays["x"][None], keep=about["k"])
    assert order[0].tolist() == arrays["picked_in_order"].tolist()
    kept = order[0].sort().values
    assert kept.tolist() == arrays["kept_sorted"].tolist()
    visual = arrays["new_input_embeds"][0, 35 : 35 + about["k"]]
    assert torch.equal(arrays["x"][kept], visual)


def test_recorded_would_notice_a_shift_but_not_lengths():
    arrays, about = load(CASES[0].values[0])
    shifted = max_min_order(arrays["x"][None] + 0.1, keep=about["k"])
    assert shifted[0].tolist() != arrays["picked_in_order"].tolist()
    longer = arrays["x"] * torch.linspace(1, 2, len(arrays["x"]))[:, None]
    same = max_min_order(longer[None], keep=about["k"])  # directions alone decide
    assert same[0].tolist() == arrays["picked_in_order"].tolist()


def test_by_hand():
    angle = torch.tensor([0.0, 10.0, 40.0, 90.0, 145.0]).deg2rad()
    states = torch.stack([angle.cos(), angle.sin()], dim=-1)[None]
    # nearest neighbours are 10, 10, 30, 50 and 55 degrees away; then the farthest from those picked
    assert max_min_order(states, keep=5)[0].tolist() == [4, 0, 3, 2, 1]


def test_a_batch_is_its_samples_and_no_token_is_picked_twice():
    torch.manual_seed(0)
    states = torch.randn(3, 20, 4)
    states[:, 10:] = states[:, :10]  # duplicates: distance zero to one another
    order = max_min_order(states, keep=20)
    assert torch.equal(order.sort(dim=-1).values, torch.arange(20).expand(3, 20))
    for i in range(3):
        assert torch.equal(max_min_order(states[i : i + 1], keep=20)[0], order[i])


def test_one_token():
    assert max_min_order(torch.ones(1, 1, 3), keep=1).tolist() == [[0]]


@pytest.mark.parametrize("keep", [0, 6])
def test_refusals(keep):
    with pytest.raises(ConfigError, match=f"found {keep}"):
        max_min_order(torch.ones(1, 5, 3), keep=keep)
