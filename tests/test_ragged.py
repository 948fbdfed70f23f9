"""Batches whose samples differ in visual tokens: each is reduced as it would be by itself."""

import pytest
import torch

from eos import Plan, Step, Theta, reduced
from eos.engine.relaxation import Relaxation, RelaxedTheta
from eos.engine.search_pass import labelled_pass, search_pass
from eos.methods.registry import OPERATORS, SCORERS
from eos.models.families import FAMILIES
from eos.testing.tiny import collated, tiny_backbone, tiny_inputs, tiny_samples
from tests.test_contract import HYBRID, decoded, every_family, gap, tokens_of
from tests.test_forward import flash_like

TEXTS, IMAGES = (12, 4, 6, 5), (1, 2, 2, 1)


@pytest.fixture(scope="module")
def backbones():
    return {kind: tiny_backbone(kind) for kind in FAMILIES}


@pytest.fixture(scope="module")
def llava(backbones):
    return backbones["llava"]


def plan_of(backbone, *keeps, **fields):
    """Keep fractions of the tokens of a plain image after layers 0, 1, 2."""
    tokens = tokens_of(backbone, tiny_inputs(backbone))
    steps = [
        Step(layer=i, keep=max(1, round(frac * tokens)), **fields) for i, frac in enumerate(keeps)
    ]
    return Plan(visual_tokens=tokens, num_layers=4, dims=backbone.dims, steps=steps)


def pyramid(backbone):
    plan = plan_of(backbone, 0.8, 0.5, 0.25)
    first, second, third = plan.steps
    steps = (
        first,
        second.model_copy(update={"operator": HYBRID}),
        third.model_copy(update={"score": "last-query"}),
    )
    return plan.model_copy(update={"steps": steps})


def ragged(backbone, texts=TEXTS, images=IMAGES):
    samples = tiny_samples(backbone, texts=texts, images=images)
    return samples, collated(samples)


def check_singles(backbone, plan, samples, together, **options):
    for i, sample in enumerate(samples):
        alone = decoded(backbone, plan, sample, **options)
        assert gap([x[0] for x in alone.logits], [x[i] for x in together.logits]) <= 1e-4
        assert torch.equal(alone.sequences[0, -4:], together.sequences[i, -4:])


@every_family
def test_each_sample_is_reduced_as_by_itself(backbones, kind):
    backbone = backbones[kind]
    samples, batch = ragged(backbone)
    plan = pyramid(backbone)
    counts = backbone.visual_mask(batch["input_ids"]).sum(dim=1).tolist()
    assert len(set(counts)) > 1
    together = decoded(backbone, plan, batch)
    check_singles(backbone, plan, samples, together)
    texts = [x["input_ids"].shape[1] - count for x, count in zip(samples, counts, strict=True)]
    for layer, cache in enumerate(together.past_key_values.layers):
        if layer == 0 or backbone.window(layer) is not None:
            continue
        fraction = plan.schedule[layer] / plan.visual_tokens
        kept = [max(1, round(fraction * count)) for count in counts]
        longest = max(text + count for text, count in zip(texts, kept, strict=True))
        assert cache.get_seq_length() == longest + 3
    other = plan_of(backbone, 0.8, 0.5, 0.5)  # the control: another fraction is another answer
    alone = decoded(backbone, other, samples[1])
    assert gap([x[0] for x in alone.logits], [x[1] for x in together.logits]) > 1e-3


@every_family
def test_cached_is_uncached_and_eager_is_sdpa(backbones, kind):
    backbone = backbones[kind]
    _, batch = ragged(backbone)
    plan = pyramid(backbone)
    cached = decoded(backbone, plan, batch)
    assert gap(cached.logits, decoded(backbone, plan, batch, use_cache=False).logits) <= 1e-4
    eager = tiny_backbone(kind, attn_implementation="eager")
    assert gap(cached.logits, decoded(eager, plan, batch).logits) <= 1e-4


@every_family
def test_before_the_decoder(backbones, kind):
    backbone = backbones[kind]
    samples, batch = ragged(backbone)
    plan = plan_of(backbone, 0.4)
    early = Step(layer=-1, keep=plan.steps[0].keep + 1, score="dissimilarity")
    plan = plan.model_copy(update={"steps": (early, *plan.steps)})
    check_singles(backbone, plan, samples, decoded(backbone, plan, batch))


def test_without_padding_there_is_no_mask_to_cut(llava):
    """One image with much text and two with little are equally long, until they are reduced."""
    samples, batch = ragged(llava, texts=(60, 22, 60), images=(1, 2, 1))
    assert bool(batch["attention_mask"].all())
    plan = pyramid(llava)
    together = decoded(llava, plan, batch)
    check_singles(llava, plan, samples, together)
    assert gap(together.logits, decoded(llava, plan, batch, use_cache=False).logits) <= 1e-4
    early = plan_of(llava, 0.5).model_copy(
        update={"steps": (Step(layer=-1, keep=12, score="dissimilarity"),)}
    )
    check_singles(llava, early, samples, decoded(llava, early, batch))
    flash = flash_like("llava")
    for found in (plan, early):
        gaps = gap(decoded(flash, found, batch).logits, decoded(llava, found, batch).logits)
        assert gaps <= 1e-4


@every_family
def test_samples_without_an_image_stay_whole(backbones, kind):
    backbone = backbones[kind]
    samples, batch = ragged(backbone, texts=(9, 4, 6), images=(1, 0, 2))
    plan = pyramid(backbone)
    check_singles(backbone, plan, samples, decoded(backbone, plan, batch))


@pytest.mark.parametrize("score", [name for name in SCORERS if name != "cls-attention"])
def test_every_scorer(llava, score):
    samples, batch = ragged(llava)
    plan = plan_of(llava, 0.8, 0.3, score=score)
    check_singles(llava, plan, samples, decoded(llava, plan, batch))


def test_class_attention_finds_the_images_of_each_sample(llava):
    samples, batch = ragged(llava)
    plan = plan_of(llava, 0.3, score="cls-attention")
    check_singles(llava, plan, samples, decoded(llava, plan, batch))
    beams = decoded(llava, plan, batch, num_beams=2, output_scores=True)
    for i, sample in enumerate(samples):
        alone = decoded(llava, plan, sample, num_beams=2, output_scores=True)
        assert torch.equal(alone.sequences[0, -4:], beams.sequences[i, -4:])
        assert torch.allclose(alone.sequences_scores[0], beams.sequences_scores[i], atol=1e-4)


@pytest.mark.parametrize("kind", OPERATORS)
def test_every_own_operator(llava, kind):
    """Those that read the vision tower take one image a sample, beside samples without any."""
    reads = "vision" in OPERATORS[kind].needs
    images = (1, 0, 1) if reads else (1, 2, 1)
    samples, batch = ragged(llava, texts=(9, 4, 6), images=images)
    fields = {"operator": {"kind": kind}, "positions": "reindex"}
    if reads:
        steps = [Step(layer=-1, keep=9, score="cls-attention", **fields)]
    else:
        steps = [Step(layer=i, keep=keep, **fields) for i, keep in enumerate((24, 12))]
    plan = Plan(visual_tokens=36, num_layers=4, steps=steps)
    together = decoded(llava, plan, batch)
    check_singles(llava, plan, samples, together)
    assert gap(together.logits, decoded(llava, plan, batch, use_cache=False).logits) <= 1e-4


RELAXATIONS = [
    Relaxation(),
    Relaxation(band=0.2),
    Relaxation(boundary="soft"),
    Relaxation(through="states"),
]


def searched(backbone, theta, inputs, relaxation):
    """Sum of the answers' losses and the distance to the full model; and Θ's gradients."""
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, -3:] = inputs["input_ids"][:, -3:]
    theta.zero_grad()
    output = search_pass(
        backbone,
        RelaxedTheta(theta, relaxation),
        inputs=inputs,
        labels=labels,
        # with a soft boundary, samples of one batch hold one another's number of partial tokens
        align_on="text" if relaxation.boundary == "soft" else "both",
        layers=(2, 3),
    )
    aligned = [
        ((pair.reduced - pair.full).square().sum(dim=-1) * pair.counted).sum()
        for pair in output.pairs
    ]
    targets = output.targets[output.targets != -100]
    loss = torch.nn.functional.cross_entropy(output.answers, targets, reduction="sum")
    (loss + 0.1 * sum(aligned)).backward()
    found = {name: weight.grad.clone() for name, weight in theta.weights.items()}
    return loss.detach(), torch.stack(aligned).detach(), found


@every_family
@pytest.mark.parametrize("relaxation", RELAXATIONS, ids=["hard", "band", "soft", "states"])
def test_a_search_pass_is_the_sum_of_its_samples(backbones, kind, relaxation):
    backbone = backbones[kind]
    samples, batch = ragged(backbone)
    tokens = tokens_of(backbone, tiny_inputs(backbone))
    theta = Theta.start(4, visual_tokens=tokens, budget=max(2, tokens // 3))
    loss, aligned, gradients = searched(backbone, theta, batch, relaxation)
    singles = [searched(backbone, theta, sample, relaxation) for sample in samples]
    assert torch.allclose(loss, sum(one[0] for one in singles), rtol=1e-4)
    assert torch.allclose(aligned, sum(one[1] for one in singles), rtol=1e-3)
    for name, found in gradients.items():
        expected = sum(one[2][name] for one in singles)
        scale = max(1e-3, expected.abs().max().item())
        assert torch.allclose(found, expected, atol=2e-3 * scale), name
    assert any(found.abs().max() > 1e-3 for found in gradients.values())


@torch.no_grad()
def test_a_measurement_of_a_plan_is_that_of_its_samples(llava):
    samples, batch = ragged(llava)
    plan = pyramid(llava)

    def answers(inputs):
        labels = torch.full_like(inputs["input_ids"], -100)
        labels[:, -3:] = inputs["input_ids"][:, -3:]
        return labelled_pass(llava, plan, inputs=inputs, labels=labels).answers

    alone = torch.cat([answers(sample) for sample in samples])
    assert torch.allclose(answers(batch), alone, atol=1e-4)


@torch.no_grad()
def test_logits_keep_their_places(llava):
    samples, batch = ragged(llava)
    with reduced(llava, pyramid(llava)) as model:
        together = model(**batch).logits
        for row, sample in zip(together, samples, strict=True):
            alone = model(**sample).logits[0]
            assert torch.allclose(row[-len(alone) :], alone, atol=1e-4)
