"""VisionZip and PruMerge inside a LLaVA whose vision tower is the recorded one."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from eos import Backbone, Original, Plan, Step, reduced
from eos.engine.forward_pass import ForwardPass
from eos.testing.tiny import IMAGE, TEXT
from tests.conftest import golden_cases

CASES = {
    "visionzip_54_10": ("contextual", 64),
    "visionzip_108_20": ("contextual", 128),
    "visionzip_162_30": ("contextual", 192),
    "prumerge_fixed63": ("prumerge", 64),
    "prumergeplus_fixed_1of8": ("prumerge+", 145),
}


def recorded_llava(path):
    """The recorded tower; a projector that changes nothing; a decoder of the same width."""
    arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    sizes = json.loads(path.with_suffix(".json").read_text())["parameters"]["clip_config"]
    config = AutoConfig.for_model(
        "llava",
        text_config={
            **TEXT,
            "model_type": "llama",
            "hidden_size": 32,
            "max_position_embeddings": 1024,
        },
        vision_config={**sizes, "model_type": "clip_vision_model"},
        image_token_index=IMAGE,
    )
    model = AutoModelForImageTextToText.from_config(config)
    tower = model.model.vision_tower
    weights = {
        name.removeprefix("w:vision_model."): value
        for name, value in arrays.items()
        if name.startswith("w:")
    }
    tower.load_state_dict({**tower.state_dict(), **weights})
    model.model.multi_modal_projector = torch.nn.Identity()
    return Backbone(model), arrays


@torch.no_grad()
def visual_states(backbone, arrays, operator, keep, monkeypatch):
    """What enters the decoder as visual tokens under a step before it."""
    seen = []

    class Noting(ForwardPass):
        def _reduce(self, call, step):
            result = super()._reduce(call, step)
            seen.append(result.states[self.stage.visual])
            return result

    monkeypatch.setattr("eos.engine.reduced.ForwardPass", Noting)
    step = Step(layer=-1, keep=keep, score="cls-attention", positions="reindex", operator=operator)
    ids = torch.tensor([[1, 5, *[IMAGE] * 576, 7, 8, 9]])
    with reduced(backbone, Plan(visual_tokens=576, num_layers=4, steps=[step])) as model:
        model(input_ids=ids, pixel_values=arrays["pixel_values"])
    return seen[0]


@pytest.mark.parametrize("path", golden_cases("clip_e2e*"))
@pytest.mark.parametrize("case", CASES)
def test_tokens_that_enter_the_decoder(path, case, monkeypatch):
    backbone, arrays = recorded_llava(path)
    kind, keep = CASES[case]
    found = visual_states(backbone, arrays, Original(kind=kind), keep, monkeypatch)
    assert found.shape == arrays[f"{case}_out"][0].shape
    assert (found - arrays[f"{case}_out"][0]).abs().max() <= 1e-5


@pytest.mark.parametrize("path", golden_cases("clip_e2e*"))
def test_the_fixed_point_keeps_the_dominant_patches(path, monkeypatch):
    backbone, arrays = recorded_llava(path)
    found = visual_states(backbone, arrays, {"gamma": 0.0}, 53, monkeypatch)
    dominant = arrays["visionzip_54_10_out"][0, 1:54]  # behind the class token
    assert (found - dominant).abs().max() <= 1e-5
    other = visual_states(backbone, arrays, Original(kind="prumerge"), 53, monkeypatch)
    assert (other - dominant).abs().max() > 1e-3
