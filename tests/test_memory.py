"""Passes that share what they have in common give what they give alone, in every family."""

import pytest
import torch

import eos
from eos import BackboneError, Plan, Step
from eos.models.families import FAMILIES
from eos.models.memory import remembering
from eos.testing.tiny import tiny_backbone, tiny_inputs


def logits(backbone, inputs, plan):
    with torch.no_grad(), eos.reduced(backbone, plan) as model:
        return model(**inputs, use_cache=False).logits


@pytest.mark.parametrize("kind", FAMILIES)
def test_shared_images_and_layers_change_nothing(kind):
    backbone = tiny_backbone(kind)
    inputs = tiny_inputs(backbone, texts=(7, 7))
    tokens = int(backbone.visual_mask(inputs["input_ids"])[0].sum())
    sizes = {"visual_tokens": tokens, "num_layers": backbone.num_layers}
    plans = [
        Plan(**sizes, steps=(Step(layer=layer, keep=keep, score="diversity"),))
        for layer in (0, 1)
        for keep in (tokens // 2, 2)
    ]
    alone = [logits(backbone, inputs, plan) for plan in plans]
    assert not torch.equal(alone[0], alone[1])
    images = []
    for layers in (True, False):
        with remembering(backbone, inputs, images=images, layers=layers) as memory:
            for plan, expected in zip(plans, alone, strict=True):
                memory.until = plan.steps[0].layer if layers else -1
                assert torch.equal(logits(backbone, inputs, plan), expected)
        assert len(images) == 1  # encoded once, for both blocks
    assert torch.equal(logits(backbone, inputs, plans[0]), alone[0])  # nothing stays behind


def test_what_is_reduced_before_a_shared_layer_is_noticed():
    backbone = tiny_backbone("llava")
    inputs = tiny_inputs(backbone, texts=(7,))
    tokens = int(backbone.visual_mask(inputs["input_ids"])[0].sum())
    step = Step(layer=0, keep=2, score="diversity")
    plan = Plan(visual_tokens=tokens, num_layers=backbone.num_layers, steps=(step,))
    with remembering(backbone, inputs) as memory:
        memory.until = 1
        with pytest.raises(BackboneError, match="nothing reduced before layer 1"):
            logits(backbone, inputs, plan)
