"""FastV: its count and, with our scorer and selection, its kept tokens as recorded."""

import json

import numpy as np
import pytest
import torch

from eos import ConfigError
from eos.methods.fastv import keep_count
from eos.operator.scorers import Evidence, attention_received
from eos.operator.select import select
from eos.tokens import take
from tests.conftest import golden_cases

CASES = golden_cases("fastv_*")


def load(path):
    arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    return arrays, json.loads(path.with_suffix(".json").read_text())["parameters"]


def scored(arrays, parameters):
    start = parameters["image_start"]
    rows = arrays["attn_last_row"][None, :, None, start : start + parameters["N"]]
    return attention_received(Evidence(states=arrays["inputs_embeds"], attention=rows))


def keep_of(parameters):
    return keep_count(parameters["N"], parameters["R"])


@pytest.mark.parametrize("path", CASES)
def test_recorded(path):
    arrays, parameters = load(path)
    scores = scored(arrays, parameters)
    assert (scores[0] - arrays["score"]).abs().max() <= 1e-7
    assert keep_of(parameters) == parameters["keep"]
    kept = select(scores, keep_of(parameters)).kept
    assert kept[0].tolist() == arrays["kept_visual"].tolist()
    assert select(arrays["score"], parameters["keep"]).kept.tolist() == kept[0].tolist()
    start, stop = parameters["image_start"], parameters["image_start"] + parameters["N"]
    every = torch.arange(arrays["inputs_embeds"].shape[1])[None]
    positions = torch.cat([every[:, :start], kept + start, every[:, stop:]], dim=1)
    assert torch.equal(positions, arrays["position_ids_after"])
    assert torch.equal(take(arrays["inputs_embeds"], positions), arrays["hidden_after"])


def test_recorded_would_notice_one_head_less():
    arrays, parameters = load(CASES[0].values[0])
    arrays["attn_last_row"] = arrays["attn_last_row"][1:]
    kept = select(scored(arrays, parameters), parameters["keep"]).kept
    assert kept[0].tolist() != arrays["kept_visual"].tolist()


@pytest.mark.parametrize(
    ("tokens", "pruned_frac", "kept"),
    [(573, 0.5, 286), (575, 0.5, 288), (576, 0.5, 288), (576, 0.75, 144), (576, 0.0, 576)],
)
def test_halves_go_to_the_even_neighbour(tokens, pruned_frac, kept):
    assert keep_count(tokens, pruned_frac) == kept


def test_the_rule_is_not_rounding_up_or_down():
    assert int(575 * 0.5) != keep_count(575, 0.5)
    assert int(573 * 0.5 + 0.5) != keep_count(573, 0.5)


@pytest.mark.parametrize("pruned_frac", [-0.1, 1.0, float("nan")])
def test_refusals(pruned_frac):
    with pytest.raises(ConfigError, match="pruned fraction"):
        keep_count(576, pruned_frac)
