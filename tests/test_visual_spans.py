"""Visual spans come from token ids: images of different sizes, tiles, video frames."""

import pytest
import torch

from eos import Plan, Step, reduced
from eos.testing.tiny import END, IMAGE, START, VIDEO, tiny_backbone, tiny_inputs
from tests.test_contract import decoded, gap


def qwen_inputs(grids, *, video=False, seed=0):
    """One sample with an image, or a video, for each grid of patches (time, height, width)."""
    generator = torch.Generator().manual_seed(seed)
    row, token = [1, 5], VIDEO if video else IMAGE
    for time, height, width in grids:
        row += [START, *[token] * (time * height * width // 4), END]
    row += torch.randint(6, 90, (6,), generator=generator).tolist()
    ids = torch.tensor([row])
    pixels = torch.randn(sum(t * h * w for t, h, w in grids), 96, generator=generator)
    kind = "video" if video else "image"
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == token).int() * (2 if video else 1),
        "pixel_values_videos" if video else "pixel_values": pixels,
        f"{kind}_grid_thw": torch.tensor(grids),
    }


@pytest.mark.parametrize(
    ("grids", "video"),
    [([(1, 6, 6), (1, 4, 8)], False), ([(1, 8, 8)], False), ([(3, 4, 4)], True)],
    ids=["two sizes", "one size", "video"],
)
@torch.no_grad()
def test_images_of_different_sizes_and_videos(grids, video):
    backbone = tiny_backbone("qwen2_vl")
    inputs = qwen_inputs(grids, video=video)
    tokens = sum(t * h * w // 4 for t, h, w in grids)
    assert int(backbone.visual_mask(inputs["input_ids"]).sum()) == tokens
    full = backbone.model(**inputs).logits
    everything = Plan(visual_tokens=tokens, num_layers=4, steps=[Step(layer=0, keep=tokens)])
    with reduced(backbone, everything) as model:
        assert torch.equal(model(**inputs).logits, full)
    plan = Plan(
        visual_tokens=tokens, num_layers=4, steps=[Step(layer=0, keep=6), Step(layer=2, keep=2)]
    )
    cached = decoded(backbone, plan, inputs)
    assert gap(cached.logits, decoded(backbone, plan, inputs, use_cache=False).logits) <= 1e-4
    text = inputs["input_ids"].shape[1] - tokens + 3
    held = [layer.get_seq_length() - text for layer in cached.past_key_values.layers]
    assert held == [tokens, 6, 6, 2]


def test_a_plan_scales_to_an_image_of_another_size():
    backbone = tiny_backbone("qwen2_vl")
    plan = Plan(visual_tokens=8, num_layers=4, steps=[Step(layer=0, keep=4)])
    found = decoded(backbone, plan, qwen_inputs([(1, 8, 8)]), tokens=1)
    text = qwen_inputs([(1, 8, 8)])["input_ids"].shape[1] - 16
    assert found.past_key_values.layers[1].get_seq_length() == text + 8


@torch.no_grad()
def test_a_placeholder_that_was_generated_is_no_image():
    backbone = tiny_backbone("llava")
    inputs = tiny_inputs(backbone, images=0)
    inputs["input_ids"][0, -1] = IMAGE
    full = backbone.model(**inputs).logits
    with reduced(
        backbone, Plan(visual_tokens=36, num_layers=4, steps=[Step(layer=0, keep=6)])
    ) as model:
        assert torch.equal(model(**inputs).logits, full)
