"""PruMerge and PruMerge+ against recorded runs of the original, accidents included."""

import json

import numpy as np
import pytest
import torch

from eos import ConfigError
from eos.methods.prumerge import class_attention, prumerge, prumerge_plus
from tests.conftest import golden_cases

CASES = golden_cases("prumerge*")
PLAIN, PLUS = golden_cases("prumerge_*"), golden_cases("prumergeplus_*")


def load(path):
    arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    return arrays, json.loads(path.with_suffix(".json").read_text())["parameters"]


def tensors(arrays):
    attention = class_attention(arrays["q"][0], arrays["k"][0])
    return arrays["hidden"][0, 1:], arrays["k"][0, 1:], attention


def difference(left, right):
    return (left - right).abs().max().item()


@pytest.mark.parametrize("path", CASES)
def test_recorded(path):
    arrays, about = load(path)
    states, keys, attention = tensors(arrays)
    assert difference(attention, arrays["cls_attn"]) <= 1e-6
    method = prumerge_plus if about["plus"] else prumerge
    found = method(states, keys, attention, keep=None if about["if_adaptive"] else about["k_top"])
    assert found.kept.tolist() == arrays["idx"][0].tolist()
    assert difference(found.states, arrays["out"][0]) <= 1e-5
    assert len(found.states) == about["n_out"]


@pytest.mark.parametrize("path", golden_cases("clip_e2e_visionzip_prumerge"))
@pytest.mark.parametrize(
    ("name", "method", "keep"),
    [
        ("prumerge_adaptive", prumerge, None),
        ("prumerge_fixed63", prumerge, 63),
        ("prumergeplus_adaptive", prumerge_plus, None),
        ("prumergeplus_fixed_1of8", prumerge_plus, 72),
    ],
)
def test_recorded_end_to_end(path, name, method, keep):
    arrays, _ = load(path)
    layer = "w:vision_model.encoder.layers.23."
    states = arrays["hidden_states_m2"][0]
    norm = [arrays[f"{layer}layer_norm1.{part}"] for part in ("weight", "bias")]
    normed = torch.nn.functional.layer_norm(states, states.shape[-1:], *norm)
    queries, keys = (
        torch.nn.functional.linear(
            normed, *(arrays[f"{layer}self_attn.{side}_proj.{part}"] for part in ("weight", "bias"))
        )
        for side in "qk"
    )
    found = method(states[1:], keys[1:], class_attention(queries, keys), keep=keep)
    assert found.kept.tolist() == arrays[f"{name}_idx"][0].tolist()
    assert difference(found.states, arrays[f"{name}_out"][0]) <= 1e-5


def test_recorded_would_notice_another_scale_and_other_keys():
    arrays, about = load(PLAIN[0].values[0])
    states, keys, attention = tensors(arrays)
    sharper = class_attention(2 * arrays["q"][0], arrays["k"][0])
    for wrong_keys, wrong_attention in ((states, attention), (keys, sharper)):
        found = prumerge(states, wrong_keys, wrong_attention, keep=about["k_top"])
        assert difference(found.states, arrays["out"][0]) > 1e-4


def test_recorded_would_notice_a_prumerge_without_samples():
    arrays, about = load(PLUS[0].values[0])
    plain = prumerge(*tensors(arrays), keep=about["k_top"])
    assert plain.kept.tolist() != arrays["idx"][0].tolist()


def peaked(tokens, outliers):
    """Draw tokens whose class attention has so many outliers, the first ones."""
    torch.manual_seed(0)
    attention = torch.linspace(1.0, 2.0, tokens)
    attention[:outliers] += 10
    return torch.randn(tokens, 8), torch.randn(tokens, 4), attention / attention.sum()


def test_without_outliers_one_token_is_left_or_none_can_be_chosen():
    states, keys, attention = peaked(576, 0)
    found = prumerge(states, keys, attention)
    assert found.kept.tolist() == []
    assert torch.allclose(found.states, (attention @ states)[None], atol=1e-6)
    with pytest.raises(ConfigError, match="outliers, found none"):
        prumerge_plus(states, keys, attention)


def test_many_outliers_keep_all_but_the_last_token():
    kept = prumerge_plus(*peaked(576, 97)).kept  # more than a sixth
    assert kept.sort().values.tolist() == list(range(575))
    assert len(prumerge_plus(*peaked(576, 96)).kept) < 400


def test_most_fixed_counts_of_the_plus_form_are_refused():
    tokens = peaked(576, 0)
    fits = 0
    for keep in range(1, 289):
        try:
            found = prumerge_plus(*tokens, keep=keep)
        except ConfigError as error:
            assert f"samples for {keep}" in str(error)  # noqa: PT017
        else:
            fits += 1
            assert len(found.states) == 2 * keep + 1
    assert fits == 43


def test_duplicates_cost_the_first_pruned_tokens():
    states, keys, _ = peaked(64, 0)
    attention = torch.full((64,), 1e-3)
    attention[[2, 6, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53]] = 1.0
    found = prumerge_plus(states, keys, attention, keep=16)  # samples 2, 6, 10, …: four double
    duplicates = 32 - len(set(found.kept.tolist()))
    pruned = [i for i in range(64) if i not in set(found.kept.tolist())][duplicates:]
    assert duplicates > 2
    assert torch.allclose(found.states[-1], attention[pruned] @ states[pruned], atol=1e-5)


def test_by_hand():
    states, keys, attention = peaked(40, 2)
    found = prumerge(states, keys, attention)
    assert found.kept.sort().values.tolist() == [0, 1]
    cosine = torch.nn.functional.cosine_similarity(keys[found.kept[0]], keys, dim=-1)
    cosine[found.kept[0]] = -2
    likes = cosine.topk(32).indices
    expected = states[found.kept[0]] + attention[likes] @ states[likes]
    assert torch.allclose(found.states[0], expected, atol=1e-5)


@pytest.mark.parametrize("method", [prumerge, prumerge_plus])
def test_refusals(method):
    with pytest.raises(ConfigError, match="more than 32"):
        method(*peaked(32, 0), keep=4)
    with pytest.raises(ConfigError, match="at most 576"):
        method(*peaked(576, 0), keep=577)
