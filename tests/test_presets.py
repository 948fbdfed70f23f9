"""Prior methods as plans: published schedules, any budget and depth, and inside a model."""

import pytest
import torch

from eos import BackboneError, ConfigError, Plan, PlanError, reduced
from eos.methods.registry import PRESETS
from eos.methods.sparsevlm import equal_tokens
from eos.testing.tiny import tiny_backbone, tiny_inputs
from tests.test_contract import decoded, gap, split

FIXED_POINTS = [
    *[
        "fastv",
        "tome",
        "pool",
        "reweight",
        "sparsevlm-v1",
        "sparsevlm-v2",
        "visionzip",
        "prumerge+",
    ],
    *["pyramiddrop", "dart", "divprune", "random"],
]
TWINS = ["sparsevlm-v1-original", "sparsevlm-v2-original", "tome-original", "visionzip-original"]
every_preset = pytest.mark.parametrize("name", PRESETS)


def test_all_methods_are_there():
    assert set(FIXED_POINTS + TWINS) <= set(PRESETS)


@pytest.mark.parametrize(
    ("name", "budget", "keep"),
    [
        ("fastv", 192, [166]),
        ("fastv", 128, [98]),
        ("fastv", 64, [30]),
        ("sparsevlm-v1", 192, [300, 200, 110]),
        ("sparsevlm-v1", 128, [303, 110, 36]),
        ("sparsevlm-v1", 64, [66, 30, 17]),
        ("sparsevlm-v1-original", 192, [309, 204, 113]),
        ("sparsevlm-v1-original", 128, [312, 117, 39]),
        ("sparsevlm-v1-original", 64, [82, 32, 18]),
        ("sparsevlm-v2", 192, [300, 200, 118]),
        ("sparsevlm-v2", 128, [238, 108, 60]),
        ("sparsevlm-v2", 64, [66, 34, 20]),
        ("pyramiddrop", 192, [322, 180, 100]),
        ("pyramiddrop", 128, [241, 101, 42]),
        ("pyramiddrop", 64, [110, 21, 4]),
        ("pyramiddrop-default", 270, [288, 144, 72]),
        ("visionzip", 64, [64]),
    ],
)
def test_published_schedules(name, budget, keep):
    plan = Plan.preset(name, budget=budget, kind="published")
    assert [step.keep for step in plan.steps] == keep


@pytest.mark.parametrize(
    ("name", "logged"),
    [
        ("sparsevlm-v1-original", {192: 192.03125, 128: 128.625, 64: 64.8125}),
        ("sparsevlm-v2", {192: 192.4375, 128: 128.0, 64: 64.4375}),
    ],
)
def test_sparsevlm_logs_its_equal_tokens(name, logged):
    for budget, value in logged.items():
        assert equal_tokens(Plan.preset(name, budget=budget, kind="published").schedule) == value


@pytest.mark.parametrize("name", ["fastv", "pyramiddrop"])
@pytest.mark.parametrize("budget", [192, 128])
def test_labels_that_are_means_follow_from_the_mean(name, budget):
    published = Plan.preset(name, budget=budget, kind="published")
    assert abs(published.expected.mean_tokens - budget) < 1
    derived = Plan.preset(name, budget=budget, kind="mean")
    for ours, theirs in zip(derived.steps, published.steps, strict=True):
        assert abs(ours.keep - theirs.keep) <= 1


@every_preset
@pytest.mark.parametrize("budget", [192, 65, 16])
@pytest.mark.parametrize("depth", [4, 12, 32, 40])
def test_any_budget_and_any_depth(name, budget, depth):
    budget = PRESETS[name].nearest_budget(budget)
    plan = Plan.preset(name, budget=budget, num_layers=depth)
    assert plan.expected.final_tokens == budget
    assert plan.num_layers == depth


def test_unknown_names_and_labels_are_refused_with_what_there_is():
    with pytest.raises(PlanError, match=r"dart, divprune, even, fastv, .*found 'fastvv'"):
        Plan.preset("fastvv", budget=64)
    with pytest.raises(PlanError, match="published budget of fastv: 64, 128, 192; found 100"):
        Plan.preset("fastv", budget=100, kind="published")


@pytest.mark.parametrize("layers", [12, 32])
@pytest.mark.parametrize("budget", [192, 64, 16])
def test_even_spends_what_sparsevlm_v2_spends_and_shrinks_steadily(layers, budget):
    sizes = {"budget": budget, "num_layers": layers}
    even, other = (Plan.preset(name, **sizes) for name in ("even", "sparsevlm-v2"))
    assert 0.97 < even.expected.flops_ratio / other.expected.flops_ratio <= 1.0
    assert [step.layer for step in even.steps] == [0, round(layers / 3), round(2 * layers / 3)]
    counts = [step.keep for step in even.steps]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == budget
    with pytest.raises(PlanError, match="published budget of even"):
        Plan.preset("even", **sizes, kind="mean")


@pytest.fixture(scope="module")
def llava():
    return tiny_backbone("llava")


def preset_for(backbone, name):
    return Plan.preset(
        name,
        budget=9,
        visual_tokens=36,
        num_layers=backbone.num_layers,
        dims=backbone.dims,
    )


@every_preset
def test_every_preset_runs_cached_batched_and_on_any_attention(llava, name):
    inputs = tiny_inputs(llava, texts=(7, 5))
    plan = preset_for(llava, name)
    together = decoded(llava, plan, inputs)
    uncached = decoded(llava, plan, inputs, use_cache=False)
    assert torch.equal(together.sequences, uncached.sequences)
    assert gap(together.logits, uncached.logits) <= 1e-4
    for i, sample in enumerate(split(inputs, 2)):
        alone = decoded(llava, plan, sample)
        assert gap([x[0] for x in alone.logits], [x[i] for x in together.logits]) <= 1e-4
    eager = decoded(tiny_backbone("llava", attn_implementation="eager"), plan, inputs)
    assert gap(together.logits, eager.logits) <= 1e-4
    text = inputs["input_ids"].shape[1] - 36 + 3
    held = [layer.get_seq_length() - text for layer in together.past_key_values.layers]
    assert held == plan.schedule[:-1]


@torch.no_grad()
def test_presets_differ_from_each_other(llava):
    inputs = tiny_inputs(llava)
    found = {}
    for name in PRESETS:
        with reduced(llava, preset_for(llava, name)) as model:
            found[name] = model(**inputs).logits[0, -1]
    same = {
        (a, b)
        for a in found
        for b in found
        if a < b and torch.allclose(found[a], found[b], atol=1e-5)
    }
    # at this depth some share layers, counts and score
    assert same <= {("sparsevlm-v1", "sparsevlm-v2")}


def test_the_vision_tower_is_asked_only_where_it_can_answer():
    internvl = tiny_backbone("internvl")
    plan = Plan.preset("visionzip", budget=4, visual_tokens=9, num_layers=4)
    with pytest.raises(BackboneError, match="expected a LLaVA model whose projector"):
        decoded(internvl, plan, tiny_inputs(internvl))


def test_beams_share_the_image_of_their_prompt(llava):
    inputs = tiny_inputs(llava, texts=(7, 5))
    for name in ("visionzip", "visionzip-original"):
        found = decoded(llava, preset_for(llava, name), inputs, num_beams=3)
        assert found.sequences.shape[0] == 2


def test_several_images_share_class_attention_but_not_the_twins(llava):
    inputs = tiny_inputs(llava, images=2)
    decoded(llava, preset_for(llava, "visionzip"), inputs)
    with pytest.raises(ConfigError, match="one image a sample"):
        decoded(llava, preset_for(llava, "visionzip-original"), inputs)
