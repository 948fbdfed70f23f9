"""What holds for every registered family: a new one is tested by being registered."""

import copy

import pytest
import torch

from eos import BackboneError, Operator, Plan, Step
from eos.engine.reduced import reduced
from eos.models.families import FAMILIES
from eos.testing.tiny import CONFIGS, IMAGE, VIDEO, tiny_backbone, tiny_inputs

HYBRID = Operator(gamma=0.5, tau=0.3, theta=0.0, rho=0.2, nu=0.3, mass=0.7)
every_family = pytest.mark.parametrize("kind", FAMILIES)


@pytest.fixture(scope="module")
def backbones():
    return {kind: tiny_backbone(kind) for kind in FAMILIES}


def tokens_of(backbone, inputs):
    return int(backbone.visual_mask(inputs["input_ids"])[0].sum())


def plan_for(backbone, inputs, *keeps, images=1, **fields):
    """Keep the given fractions of the visual tokens after layers 0, 1, 2."""
    tokens = tokens_of(backbone, inputs) // images
    steps = [
        Step(layer=layer, keep=max(1, round(frac * tokens)), **fields)
        for layer, frac in enumerate(keeps)
    ]
    return Plan(visual_tokens=tokens, num_layers=4, dims=backbone.dims, steps=steps)


def pyramid(backbone, inputs, images=1):
    plan = plan_for(backbone, inputs, 0.8, 0.5, 0.25, images=images)
    hybrid = plan.steps[1].model_copy(update={"operator": HYBRID})
    last = plan.steps[2].model_copy(update={"score": "last-query"})
    return plan.model_copy(update={"steps": (plan.steps[0], hybrid, last)})


@torch.no_grad()
def decoded(backbone, plan, inputs, tokens=4, **options):
    with reduced(backbone, plan) as model:
        return model.generate(
            **inputs,
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            suppress_tokens=[IMAGE, VIDEO],  # a random model may say anything
            return_dict_in_generate=True,
            output_logits=True,
            **options,
        )


def gap(left, right):
    return max((a - b).abs().max().item() for a, b in zip(left, right, strict=True))


def test_every_family_has_a_tiny_model():
    assert set(CONFIGS) == set(FAMILIES)


@every_family
@torch.no_grad()
def test_keeping_everything_is_exactly_the_model(backbones, kind):
    backbone = backbones[kind]
    inputs = tiny_inputs(backbone, texts=(7, 4))
    full = backbone.model(**inputs).logits
    with reduced(backbone, plan_for(backbone, inputs, 1.0, 1.0, 1.0)) as model:
        assert torch.equal(model(**inputs).logits, full)
    tokens = tokens_of(backbone, inputs)
    one_less = Plan(visual_tokens=tokens, num_layers=4, steps=[Step(layer=0, keep=tokens - 1)])
    with reduced(backbone, one_less) as model:
        assert not torch.allclose(model(**inputs).logits, full, atol=1e-3)
    assert torch.equal(backbone.model(**inputs).logits, full)


@every_family
def test_sequences_are_truly_shorter(backbones, kind):
    backbone = backbones[kind]
    inputs = tiny_inputs(backbone)
    plan = pyramid(backbone, inputs)
    cache = decoded(backbone, plan, inputs, tokens=1).past_key_values
    text = inputs["input_ids"].shape[1] - plan.visual_tokens
    held = [layer.get_seq_length() for layer in cache.layers]
    assert held == [visual + text for visual in plan.schedule[:-1]]


@every_family
def test_cached_decoding_is_uncached_decoding(backbones, kind):
    backbone = backbones[kind]
    inputs = tiny_inputs(backbone, texts=(7, 4))
    plan = pyramid(backbone, inputs)
    cached = decoded(backbone, plan, inputs)
    uncached = decoded(backbone, plan, inputs, use_cache=False)
    assert torch.equal(cached.sequences, uncached.sequences)
    assert gap(cached.logits, uncached.logits) <= 1e-4


@every_family
def test_a_padded_batch_is_its_samples(backbones, kind):
    backbone = backbones[kind]
    texts = (7, 4, 6)
    inputs = tiny_inputs(backbone, texts=texts)
    plan = pyramid(backbone, inputs)
    together = decoded(backbone, plan, inputs)
    for i, sample in enumerate(split(inputs, len(texts))):
        alone = decoded(backbone, plan, sample)
        assert torch.equal(alone.sequences[0, -4:], together.sequences[i, -4:])
        assert gap([x[0] for x in alone.logits], [x[i] for x in together.logits]) <= 1e-4


def split(inputs, batch):
    """Take a batch apart: each sample without its padding."""
    for i in range(batch):
        length = int(inputs["attention_mask"][i].sum())
        sample = {}
        for name, value in inputs.items():
            share = value.shape[0] // batch
            part = value[i * share : (i + 1) * share]
            sample[name] = (
                part[:, -length:] if value.shape[:2] == inputs["input_ids"].shape else part
            )
        yield sample


@every_family
def test_eager_is_sdpa(backbones, kind):
    backbone = backbones[kind]
    eager = tiny_backbone(kind, attn_implementation="eager")
    inputs = tiny_inputs(backbone, texts=(7, 4))
    plan = pyramid(backbone, inputs)
    left, right = decoded(backbone, plan, inputs), decoded(eager, plan, inputs)
    assert torch.equal(left.sequences, right.sequences)
    assert gap(left.logits, right.logits) <= 1e-4


@every_family
def test_several_images_share_the_fractions(backbones, kind):
    backbone = backbones[kind]
    inputs = tiny_inputs(backbone, texts=(5, 7), images=2)
    plan = pyramid(backbone, inputs, images=2)
    found = decoded(backbone, plan, inputs, tokens=2)
    text = inputs["input_ids"].shape[1] - 2 * plan.visual_tokens
    last = found.past_key_values.layers[3].get_seq_length()
    assert last == text + 2 * plan.expected.final_tokens + 1


@every_family
@torch.no_grad()
def test_prompts_without_an_image_are_unchanged(backbones, kind):
    backbone = backbones[kind]
    plan = pyramid(backbone, tiny_inputs(backbone))
    inputs = tiny_inputs(backbone, images=0, texts=(7, 4))
    full = backbone.model(**inputs).logits
    with reduced(backbone, plan) as model:
        assert torch.equal(model(**inputs).logits, full)


@every_family
def test_nothing_is_left_behind(backbones, kind):
    backbone = backbones[kind]
    inputs = tiny_inputs(backbone)
    before = residue(backbone.model)
    with reduced(backbone, pyramid(backbone, inputs)):
        assert residue(backbone.model) != before  # the control: hooks are seen
    assert residue(backbone.model) == before
    with pytest.raises(ZeroDivisionError), reduced(backbone, pyramid(backbone, inputs)):
        _ = 1 / 0
    assert residue(backbone.model) == before


def residue(model):
    """Everything a block could leave on modules: hooks and attributes."""
    return {
        name: (len(module._forward_pre_hooks), len(module._forward_hooks), sorted(vars(module)))
        for name, module in model.named_modules()
    }


@every_family
@torch.no_grad()
def test_losses_are_those_of_the_text(backbones, kind):
    backbone = backbones[kind]
    inputs = tiny_inputs(backbone, texts=(9,))
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, -4:] = inputs["input_ids"][:, -4:]
    with reduced(backbone, pyramid(backbone, inputs)) as model:
        output = model(**inputs, labels=labels)
    expected = torch.nn.functional.cross_entropy(output.logits[0, -5:-1].float(), labels[0, -4:])
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)


@every_family
@torch.no_grad()
def test_an_answer_that_is_taught_does_not_choose_the_tokens(backbones, kind):
    backbone = backbones[kind]
    inputs = tiny_inputs(backbone, texts=(9,))
    plan = pyramid(backbone, inputs)
    prompt = {
        k: v[:, :-3] if v.shape[:2] == inputs["input_ids"].shape else v for k, v in inputs.items()
    }
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, -3:] = inputs["input_ids"][:, -3:]
    with reduced(backbone, plan) as model:
        asked = model(**prompt).logits[:, -1]
        taught = model(**inputs, labels=labels).logits[:, -4]
        untold = model(**inputs).logits[:, -4]
    assert torch.allclose(asked, taught, atol=1e-4)
    assert not torch.allclose(asked, untold, atol=1e-3)


def test_a_family_that_is_not_supported_is_refused_with_what_is():
    backbone = tiny_backbone("llava")
    model = copy.copy(backbone.model)
    model.config = copy.deepcopy(model.config)
    type(model.config).model_type, kept = "blip", type(model.config).model_type
    try:
        with pytest.raises(BackboneError, match=r"llava, llava_next, .*found 'blip'"):
            type(backbone)(model)
    finally:
        type(model.config).model_type = kept
