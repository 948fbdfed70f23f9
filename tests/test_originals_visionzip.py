"""VisionZip against recorded runs of the original."""

import json

import numpy as np
import pytest
import torch

from eos import ConfigError
from eos.methods.visionzip import zip_tokens
from tests.conftest import golden_cases

CASES = golden_cases("visionzip_*")


def load(path):
    arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    about = json.loads(path.with_suffix(".json").read_text())["parameters"]
    return arrays, about


def tensors(arrays):
    return arrays["hidden"], arrays["cls_attn_rows"], arrays["metric"]


def difference(left, right):
    return (left - right).abs().max().item()


@pytest.mark.parametrize("path", CASES)
def test_recorded(path):
    arrays, about = load(path)
    zipped = zip_tokens(
        *tensors(arrays), dominant=about["dominant"], contextual=about["contextual"]
    )
    assert torch.equal(zipped.kept, arrays["kept_sorted"])
    assert difference(zipped.states, arrays["out"]) <= 1e-5
    assert zipped.states.shape[1] == about["out_tokens"]


@pytest.mark.parametrize("path", golden_cases("clip_e2e_visionzip_prumerge"))
@pytest.mark.parametrize(("dominant", "contextual"), [(54, 10), (108, 20), (162, 30)])
def test_recorded_end_to_end(path, dominant, contextual):
    arrays, _ = load(path)
    states, attention = arrays["hidden_states_m2"], arrays["cls_attn_m2"]
    zipped = zip_tokens(
        states, attention, arrays["visionzip_metric"], dominant=dominant, contextual=contextual
    )
    recorded = f"visionzip_{dominant}_{contextual}"
    assert torch.equal(zipped.kept, arrays[f"{recorded}_all_indices"].sort(dim=-1).values)
    assert difference(zipped.states, arrays[f"{recorded}_out"]) <= 1e-5


def test_recorded_would_notice_other_keys_and_one_head_less():
    arrays, about = load(CASES[0].values[0])
    states, attention, keys = tensors(arrays)
    counts = {"dominant": about["dominant"], "contextual": about["contextual"]}
    other = zip_tokens(states, attention, states, **counts)
    assert difference(other.states, arrays["out"]) > 1e-3
    other = zip_tokens(states, attention[:, 1:], keys, **counts)
    assert not torch.equal(other.kept, arrays["kept_sorted"])


def test_by_hand():
    states = torch.arange(7.0)[None, :, None].expand(1, 7, 2)
    attention = torch.tensor([[[0.0, 0.1, 0.5, 0.1, 0.1, 0.1, 0.1]]])
    keys = torch.tensor([[[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1], [1, 0], [1, 1e-3]]])
    zipped = zip_tokens(states, attention, keys, dominant=2, contextual=2)
    assert zipped.kept.tolist() == [[0, 2]]
    assert zipped.targets.tolist() == [[1, 4]]  # of 1, 3, 4, 5, 6 every second, the first two
    assert zipped.states[0, :, 0].tolist() == [0, 2, 1 + (5 + 6) / 2, 4 + 3]


def test_nothing_is_lost_if_everything_fits():
    states = torch.randn(1, 9, 3)
    tensors = (states, torch.rand(1, 2, 9), torch.randn(1, 9, 4))
    zipped = zip_tokens(*tensors, dominant=5, contextual=4)
    index = torch.cat([zipped.kept, zipped.targets], dim=1)[0]
    assert sorted(index.tolist()) == list(range(9))
    assert torch.equal(zipped.states[0], states[0, index])


def test_a_target_that_nobody_joins_stays_as_it_is():
    states = torch.randn(1, 4, 3)
    keys = torch.tensor([[[1.0, 0], [1, 0], [-1, 0], [1, 0]]])
    zipped = zip_tokens(states, torch.zeros(1, 2, 4), keys, dominant=1, contextual=2)
    assert zipped.targets.tolist() == [[1, 2]]
    assert torch.equal(zipped.states[0, 2], states[0, 2])
    assert torch.allclose(zipped.states[0, 1], states[0, 1] + states[0, 3])


@pytest.mark.parametrize(
    ("shapes", "counts", "message"),
    [
        (((1, 9, 4), (1, 2, 9), (1, 8, 4)), (3, 2), r"\[1, 8, 4\]"),
        (((1, 9, 4), (1, 2, 8), (1, 9, 4)), (3, 2), r"\[1, 2, 8\]"),
        (((1, 9, 4), (1, 2, 9), (1, 9, 4)), (8, 2), "at most 9"),
        (((1, 9, 4), (1, 2, 9), (1, 9, 4)), (0, 2), "at least 1 dominant"),
        (((1, 9, 4), (1, 2, 9), (1, 9, 4)), (3, 0), "1 contextual"),
    ],
)
def test_refusals(shapes, counts, message):
    dominant, contextual = counts
    with pytest.raises(ConfigError, match=message):
        zip_tokens(*map(torch.ones, shapes), dominant=dominant, contextual=contextual)
