"""ToMe: one step and several, against recorded runs of the original."""

import json

import numpy as np
import pytest
import torch

from eos import ConfigError
from eos.methods.tome import bipartite_step, merge_to
from tests.conftest import golden_cases

ONE = golden_cases("tome_onestep_*")
MANY = golden_cases("tome_multistep_*")


def load(path):
    arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    return arrays, json.loads(path.with_suffix(".json").read_text())["parameters"]


def difference(left, right):
    return (left - right).abs().max().item()


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("path", ONE)
def test_recorded_step(path, sized):
    case, parameters = load(path)
    suffix = "_sized" if sized else ""
    sizes = case["size_in"][..., 0] if sized else torch.ones(1, parameters["N"])
    merged = bipartite_step(
        case["x"],
        case["metric"],
        sizes,
        merge=parameters["r"],
        protected=int(parameters["class_token"]),
    )
    assert merged.source[0].tolist() == case["group_of_input"].tolist()
    assert difference(merged.states, case[f"y{suffix}"]) <= 1e-5
    assert difference(merged.sizes, case[f"size_out{suffix}"][..., 0]) <= 1e-5
    assert merged.states.shape[1] == parameters["N"] - parameters["r_effective"]


@pytest.mark.parametrize("path", MANY)
def test_recorded_steps(path):
    case, parameters = load(path)
    metric, ones = case.get("metric"), torch.ones(case["x"].shape[:2])
    left = ones.shape[1]
    for step, merge in enumerate(parameters["schedule"]):
        left -= merge
        merged = merge_to(case["x"], metric, ones, keep=left)
        assert merged.source[0].tolist() == case[f"group_step{step}"].tolist()
        assert difference(merged.states, case[f"y_step{step}"]) <= 1e-5
        assert difference(merged.sizes, case[f"size_step{step}"][..., 0]) <= 1e-5
    assert left == parameters["target"]


def test_recorded_step_would_notice_sizes_and_the_class_token():
    case, parameters = load(ONE[0].values[0])
    ones = torch.ones(1, parameters["N"])
    right = {"merge": parameters["r"], "protected": int(parameters["class_token"])}
    unsized = bipartite_step(case["x"], case["metric"], ones, **right)
    assert difference(unsized.states, case["y_sized"]) > 1e-3
    other = bipartite_step(case["x"], None, ones, **right)
    assert other.source[0].tolist() != case["group_of_input"].tolist()
    right["protected"] = 1 - right["protected"]
    other = bipartite_step(case["x"], case["metric"], ones, **right)
    assert other.source[0].tolist() != case["group_of_input"].tolist()


def test_by_hand():
    states = torch.tensor([[[1.0, 0.0], [0.0, 3.0], [0.0, 1.0], [-1.0, 0.0]]])
    merged = bipartite_step(states, None, torch.tensor([[1.0, 2.0, 1.0, 1.0]]), merge=1)
    assert merged.source.tolist() == [[0, 1, 1, 2]]
    assert torch.allclose(merged.states, torch.tensor([[[1.0, 0.0], [0.0, 7 / 3], [-1.0, 0.0]]]))
    assert merged.sizes.tolist() == [[1.0, 3.0, 1.0]]
    assert merged.metric is merged.states


@pytest.mark.parametrize("tokens", [7, 8])
def test_every_token_is_accounted_for_and_a_batch_is_its_samples(tokens):
    torch.manual_seed(0)
    states, metric = torch.randn(3, tokens, 5), torch.randn(3, tokens, 4)
    sizes = torch.rand(3, tokens) + 0.5
    for keep in range(1, tokens + 1):
        merged = merge_to(states, metric, sizes, keep=keep)
        assert merged.states.shape == (3, keep, 5)
        assert merged.metric.shape == (3, keep, 4)
        assert torch.allclose(merged.sizes.sum(dim=1), sizes.sum(dim=1))
        for before, after in ((states, merged.states), (metric, merged.metric)):
            mass = (after * merged.sizes[..., None]).sum(dim=1)
            assert torch.allclose(mass, (before * sizes[..., None]).sum(dim=1), atol=1e-5)
        for i in range(3):
            alone = merge_to(states[i : i + 1], metric[i : i + 1], sizes[i : i + 1], keep=keep)
            assert torch.equal(alone.source[0], merged.source[i])
            assert torch.allclose(alone.states[0], merged.states[i], atol=1e-6)


def test_nothing_to_merge_is_the_identity():
    states, sizes = torch.randn(2, 5, 3), torch.ones(2, 5)
    merged = bipartite_step(states, None, sizes, merge=0)
    assert merged.states is states
    assert merged.source.tolist() == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("tokens", [4, 5])
def test_the_class_token_stays_first(tokens):
    states, sizes = torch.ones(1, tokens, 3), torch.ones(1, tokens)
    merged = bipartite_step(states, None, sizes, merge=tokens, protected=1)
    assert merged.source[0, 0] == 0
    assert merged.sizes[0, 0] == 1


X, ONES = torch.ones(1, 4, 2), torch.ones(1, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: merge_to(X, None, ONES, keep=0), "between 1 and 4"),
        (lambda: merge_to(X, None, ONES, keep=5), "found 5"),
        (lambda: bipartite_step(X, None, ONES[:, :3], merge=1), r"\[1, 3\]"),
        (lambda: bipartite_step(X, X[:, :3], ONES, merge=1), r"metric .* found \[1, 3, 2\]"),
        (lambda: bipartite_step(X, None, ONES, merge=1, protected=2), "found 2"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
