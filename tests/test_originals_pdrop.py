"""PyramidDrop (arXiv 2410.17247): our selection on its recomputed score keeps what it kept.

The method has no file of its own: it is the attention of the last instruction token, computed with
the next layer's weights, and a top-k. Both are rebuilt here from the recorded projections.
"""

import json

import numpy as np
import pytest
import torch

from eos.operator.scorers import Evidence, attention_received
from eos.operator.select import select
from eos.tokens import take
from tests.conftest import golden_cases

CASES = golden_cases("pdrop_*")


class Case:
    """A recorded drop."""

    def __init__(self, path):
        self.arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
        about = json.loads(path.with_suffix(".json").read_text())["parameters"]
        self.heads, self.width, self.keep = about["num_heads"], about["head_dim"], about["keep"]
        self.theta, self.eps, self.query = (
            about["rope_theta"],
            about["rms_eps"],
            about["query_index"],
        )
        self.start = about["image_token_posi"]
        self.stop = self.start + about["n_image_in"]
        self.wanted = int(
            about["image_tokens"] * about["image_token_ratio_list"][about["stage"] + 1]
        )

    def __getitem__(self, name):
        return self.arrays[name]


def rotated(x, positions, theta):
    width = x.shape[-1]
    frequency = theta ** (-torch.arange(0, width, 2).float() / width)
    angle = torch.cat([positions[..., None] * frequency] * 2, dim=-1)[:, None]
    half = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], dim=-1)
    return x * angle.cos() + half * angle.sin()


def row_scores(case, query):
    """Score the visual tokens by the attention of one query row."""
    states = case["features"]
    normed = states * torch.rsqrt(states.square().mean(dim=-1, keepdim=True) + case.eps)
    normed = normed * case["input_layernorm"]
    q, k = (
        rotated(
            (normed @ case[name].T).unflatten(-1, (case.heads, case.width)).transpose(1, 2),
            case["position_ids"],
            case.theta,
        )
        for name in ("q_proj", "k_proj")
    )
    # later tokens, padding among them, are out of this row's sight
    logits = q[:, :, query : query + 1] @ k[:, :, : query + 1].mT / case.width**0.5
    rows = torch.softmax(logits, dim=-1)[..., case.start : case.stop]
    return attention_received(Evidence(states=states, attention=rows))


@pytest.mark.parametrize("path", CASES)
def test_recorded(path):
    case = Case(path)
    scores = row_scores(case, case.query)
    assert (scores[0] - case["score"]).abs().max() <= 1e-6
    assert case.keep == case.wanted
    kept = select(scores, case.keep).kept
    assert kept[0].tolist() == case["kept_visual"].tolist()
    assert select(case["score"], case.keep).kept.tolist() == kept[0].tolist()
    # padding is cut off, and what is left stands at new, contiguous positions
    real = int(case["attention_mask"].sum()) if "attention_mask" in case.arrays else None
    every = torch.arange(case["features"].shape[1])[None, :real]
    index = torch.cat([every[:, : case.start], kept + case.start, every[:, case.stop :]], dim=1)
    assert torch.equal(take(case["features"], index), case["features_after"])
    assert case["position_ids_after"][0].tolist() == list(range(index.shape[1]))


def test_recorded_would_notice_another_query_row():
    case = Case(CASES[0].values[0])
    kept = select(row_scores(case, case.query - 1), case.keep).kept
    assert kept[0].tolist() != case["kept_visual"].tolist()
