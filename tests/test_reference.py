"""The full model beside the reduced one: the same states as by itself, for less work."""

import pytest
import torch

from eos import ConfigError, Plan
from eos.engine.reference import align_layers
from eos.engine.relaxation import Relaxation, RelaxedTheta
from eos.engine.search_pass import search_pass
from eos.models.families import FAMILIES
from eos.testing.tiny import tiny_backbone, tiny_inputs
from tests.test_contract import tokens_of
from tests.test_search_pass import deployed, middle, taught


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone("llava")


def passed(backbone, theta, inputs, relaxation=None, **options):
    search = RelaxedTheta(theta, relaxation or Relaxation())
    return search_pass(backbone, search, inputs=inputs, labels=taught(inputs), **options)


@torch.no_grad()
def full_states(backbone, inputs):
    """After each layer but the last, as the model itself tells."""
    return backbone.model(**inputs, output_hidden_states=True).hidden_states[1:-1]


@pytest.mark.parametrize("band", [0, 4])
@pytest.mark.parametrize("on", ["text", "visual", "both"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_shared_states_are_those_of_a_separate_pass(kind, on, band):
    backbone = tiny_backbone(kind)
    inputs = tiny_inputs(backbone, texts=(9, 6))
    theta = middle(tokens_of(backbone, inputs)).fix("g", 0.0, layers=[0])
    options = {"align_on": on, "layers": [0, 1, 2], "relaxation": Relaxation(band=band)}
    found = passed(backbone, theta, inputs, **options)
    wanted = full_states(backbone, inputs)
    assert [pair.layer for pair in found.pairs] == [1, 2]  # until then there is no difference
    assert found.compared == 3
    visual, valid = backbone.visual_mask(inputs["input_ids"]), inputs["attention_mask"].bool()
    for pair in found.pairs:
        assert not pair.full.requires_grad
        assert pair.reduced.requires_grad
        for sample in range(2):
            rows = pair.full[sample][pair.counted[sample]]
            everywhere = wanted[pair.layer][sample][valid[sample]]
            if on == "text":
                text = wanted[pair.layer][sample][valid[sample] & ~visual[sample]]
                assert torch.allclose(rows, text, atol=1e-5)
            elif pair.layer == 2:  # Qwen3-VL adds features to visual tokens after layers 0 and 1
                distance = (rows[:, None] - everywhere).abs().amax(dim=-1)
                assert distance.amin(dim=1).max() <= 1e-5
    assert (pair.reduced - pair.full)[pair.counted].abs().max() > 1e-3  # the passes do differ
    left = theta.retain_schedule()
    text = (valid & ~visual).sum(dim=1)
    counts = {"text": text, "visual": 0 * text + left[2], "both": text + left[2]}
    assert torch.equal(found.pairs[0].counted.sum(dim=1), counts[on])


def test_after_the_last_layer_too(backbone):
    inputs = tiny_inputs(backbone, texts=(9, 6))
    found = passed(backbone, middle(), inputs, layers=[3])
    with torch.no_grad():
        output = backbone.model.model(**inputs).last_hidden_state
        normed = backbone.final_norm(found.pairs[0].full)
    text = ~backbone.visual_mask(inputs["input_ids"]) & inputs["attention_mask"].bool()
    assert torch.allclose(normed[found.pairs[0].counted], output[text], atol=1e-5)


def counted_work(backbone, monkeypatch, theta, **options):
    """Which layers ran for the reference, and how often tower and layers ran in all."""
    inputs, alone, seen = tiny_inputs(backbone, texts=(9, 6)), [], {"tower": 0, "layers": 0}
    run_layer = type(backbone).run_layer
    modules = [("tower", backbone.multimodal.vision_tower)]
    modules += [("layers", layer.self_attn) for layer in backbone.layers]

    def noting(self, call):
        alone.append(call.index)
        return run_layer(self, call)

    def counting(name):
        return lambda module, args, kwargs: seen.update({name: seen[name] + 1})

    hooks = [
        module.register_forward_pre_hook(counting(name), with_kwargs=True)
        for name, module in modules
    ]
    try:
        with monkeypatch.context() as patch:
            patch.setattr(type(backbone), "run_layer", noting)
            passed(backbone, theta, inputs, **options)
    finally:
        for hook in hooks:
            hook.remove()
    return alone, seen


def test_nothing_is_computed_twice_and_nothing_for_nobody(backbone, monkeypatch):
    late = middle().fix("g", 0.0, layers=[0])
    counted = counted_work(backbone, monkeypatch, late, layers=[2])
    assert counted == ([2], {"tower": 1, "layers": 5})
    counted = counted_work(backbone, monkeypatch, middle(), layers=[3])
    assert counted == ([1, 2, 3], {"tower": 1, "layers": 7})
    counted = counted_work(backbone, monkeypatch, middle(), align_on=None)
    assert counted == ([], {"tower": 1, "layers": 4})
    counted = counted_work(backbone, monkeypatch, middle(), layers=[1], predict=False)
    assert counted == ([1], {"tower": 1, "layers": 3})


@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_are_those_of_the_answers(kind):
    backbone = tiny_backbone(kind)
    inputs = tiny_inputs(backbone, texts=(9, 6))
    theta = middle(tokens_of(backbone, inputs))
    found = passed(backbone, theta, inputs)
    wanted = deployed(backbone, Plan.from_theta(theta, every_layer=True), inputs)
    assert torch.allclose(found.logits, wanted[:, -4:-1], atol=1e-5)
    assert torch.equal(found.targets, inputs["input_ids"][:, -3:])
    closed = theta.fix("g", 0.0)
    with torch.no_grad():
        full = backbone.model(**inputs).logits[:, -4:-1]
    assert torch.allclose(passed(backbone, closed, inputs).logits, full, atol=1e-5)


def test_states_alone_are_those_with_logits(backbone):
    inputs = tiny_inputs(backbone, texts=(9, 6))
    with_logits = passed(backbone, middle(), inputs, layers=[1])
    without = passed(backbone, middle(), inputs, layers=[1], predict=False)
    assert without.logits is None
    assert with_logits.logits.shape == (2, 3, 128)
    assert torch.equal(without.pairs[0].reduced, with_logits.pairs[0].reduced)


def test_every_fourth_layer():
    assert align_layers(32) == (4, 8, 12, 16, 20, 24, 28)
    assert align_layers(12) == (4, 8)
    assert align_layers(4) == (3,)


def test_impossible_comparisons_are_refused(backbone):
    inputs = tiny_inputs(backbone)
    with pytest.raises(ConfigError, match=r"layers from 0 to 3, found \[1, 4\]"):
        passed(backbone, middle(), inputs, layers=[1, 4])
    with pytest.raises(ConfigError, match="'text', 'visual' or 'both', found 'images'"):
        passed(backbone, middle(), inputs, align_on="images")
