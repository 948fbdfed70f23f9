"""Θ inside a model: the forward pass of a plan, with gradients to every group."""

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from eos import BackboneError, ConfigError, DataError, Plan, Theta, reduced
from eos.engine.relaxation import Relaxation, RelaxedTheta
from eos.engine.search_pass import search_pass
from eos.models.attention import KEYWORD, Keys, weighing, weighted_attention
from eos.models.families import FAMILIES
from eos.space.theta import GROUPS
from eos.testing.tiny import tiny_backbone, tiny_inputs
from tests.test_contract import decoded, gap, residue, split, tokens_of

RELAXATIONS = {
    "rank": Relaxation(),
    "marginal": Relaxation(selection="marginal"),
    "paper": Relaxation(selection="paper"),
    "paper-states": Relaxation(selection="paper", through="states"),
    "band": Relaxation(band=3),
    "wide-band": Relaxation(band=0.6),
}
SOFT = {
    "soft": Relaxation(boundary="soft"),
    "soft-marginal": Relaxation(boundary="soft", selection="marginal"),
}
every_relaxation = pytest.mark.parametrize("relaxation", RELAXATIONS.values(), ids=RELAXATIONS)


BOTH = {**RELAXATIONS, **SOFT}
soft_and_hard = pytest.mark.parametrize("relaxation", BOTH.values(), ids=BOTH)


@pytest.fixture(scope="module")
def backbones():
    return {kind: tiny_backbone(kind) for kind in FAMILIES}


@pytest.fixture(scope="module")
def backbone(backbones):
    return backbones["llava"]


def taught(inputs, answer=3):
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, -answer:] = inputs["input_ids"][:, -answer:]
    return labels


def middle(tokens=36, seed=0, **options):
    """Θ that reduces at every site, with no two sites alike."""
    theta = Theta(4, visual_tokens=tokens, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in theta.weights.values():
            weight.copy_(0.5 * torch.randn(len(weight), generator=generator))
    return theta


def loss_and_gradients(backbone, theta, inputs, labels=None, **options):
    labels = taught(inputs) if labels is None else labels
    for weight in theta.weights.values():
        weight.grad = torch.zeros_like(weight)
    with reduced(backbone, theta, **options) as model:
        output = model(**inputs, labels=labels)
        answer_loss(output.logits, labels).backward()
    return output, {group: theta.weights[group].grad.clone() for group in GROUPS}


def answer_loss(logits, labels):
    """The model's own loss, in the precision of its logits."""
    kept = labels[:, 1:] != -100
    return torch.nn.functional.cross_entropy(logits[:, :-1][kept], labels[:, 1:][kept])


@torch.no_grad()
def deployed(backbone, plan, inputs):
    with reduced(backbone, plan) as model:
        return model(**inputs, labels=taught(inputs)).logits


@pytest.mark.parametrize("input_site", [False, True])
@every_relaxation
def test_the_search_forward_is_that_of_the_plan_with_its_counts(backbone, relaxation, input_site):
    inputs, theta = tiny_inputs(backbone, texts=(9, 6)), middle(input_site=input_site)
    plan = Plan.from_theta(theta, every_layer=True)
    assert len(plan.steps) == 4 + input_site
    found, _ = loss_and_gradients(backbone, theta, inputs, relaxation=relaxation)
    assert (found.logits - deployed(backbone, plan, inputs)).abs().max() <= 1e-5
    one_less = plan.steps[1].model_copy(update={"keep": plan.steps[1].keep - 1})
    other = plan.model_copy(update={"steps": (plan.steps[0], one_less, *plan.steps[2:])})
    assert (found.logits - deployed(backbone, other, inputs)).abs().max() > 1e-3


@pytest.mark.parametrize("band", [0, 2])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_searches(backbones, kind, band):
    backbone = backbones[kind]
    inputs = tiny_inputs(backbone, texts=(9, 6))
    theta = middle(tokens_of(backbone, inputs), input_site=True)
    options = {"relaxation": Relaxation(band=band)}
    found, gradients = loss_and_gradients(backbone, theta, inputs, **options)
    plan = Plan.from_theta(theta, every_layer=True)
    assert (found.logits - deployed(backbone, plan, inputs)).abs().max() <= 1e-5
    for group, gradient in gradients.items():
        assert gradient.isfinite().all()
        assert (gradient[:4] != 0).any(), group


@soft_and_hard
def test_the_task_loss_reaches_all_seven_groups(backbone, relaxation):
    inputs = tiny_inputs(backbone, texts=(9, 6))
    _, gradients = loss_and_gradients(backbone, middle(), inputs, relaxation=relaxation)
    for group in GROUPS:
        assert (gradients[group][:3] != 0).all(), group
        assert gradients[group][3] == 0  # nobody looks at what the last layer leaves


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_fixed_gets_no_gradient(backbone, group):
    inputs, theta = tiny_inputs(backbone), middle().freeze(group)
    _, gradients = loss_and_gradients(backbone, theta, inputs)
    for other in GROUPS:
        assert bool((gradients[other] == 0).all()) == (other == group)


def test_closed_sites_cost_and_say_nothing(backbone):
    inputs, theta = tiny_inputs(backbone), middle().fix("g", 0.0, layers=[0, 1])
    with reduced(backbone, theta) as model:
        output = model(**inputs, labels=taught(inputs), output_hidden_states=True)
    # frozen layers before the first site keep no activations: a site acts between two layers
    assert [x.requires_grad for x in output.hidden_states] == [False] * 4 + [True]
    output.loss.backward()
    assert theta.weights["gamma"].grad[:2].tolist() == [0.0, 0.0]
    assert theta.weights["gamma"].grad[2] != 0


def precise(monkeypatch):
    """A model in float64 throughout, and a batch: transformers' norms would round to float32."""

    def norm(module, x):
        return module.weight * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    monkeypatch.setattr(LlamaRMSNorm, "forward", norm)
    backbone = tiny_backbone("llava")
    backbone.model.double()
    inputs = tiny_inputs(backbone, texts=(9, 6))
    return backbone, {**inputs, "pixel_values": inputs["pixel_values"].double()}


@pytest.mark.parametrize("group", ["gamma", "tau", "theta", "rho", "nu"])
def test_gradients_of_the_operator_are_those_of_the_deployed_loss(group, monkeypatch):
    backbone, inputs = precise(monkeypatch)
    theta = middle(seed=3).double()
    _, gradients = loss_and_gradients(backbone, theta, inputs)

    @torch.no_grad()
    def loss_at(layer, shift):
        theta.weights[group][layer] += shift
        with reduced(backbone, theta) as model:
            labels = taught(inputs)
            loss = answer_loss(model(**inputs, labels=labels).logits, labels).item()
        theta.weights[group][layer] -= shift
        return loss

    numeric = [(loss_at(i, 1e-4) - loss_at(i, -1e-4)) / 2e-4 for i in range(4)]
    numeric = torch.tensor(numeric, dtype=torch.float64)
    # scores are held fixed, which importance (Eq. 7) depends on a little
    assert torch.allclose(gradients[group], numeric, rtol=2e-3, atol=1e-7)
    assert not torch.allclose(gradients[group].roll(1), numeric, rtol=2e-3, atol=1e-7)


@soft_and_hard
def test_checkpointing_changes_nothing_but_memory(backbone, relaxation):
    inputs = tiny_inputs(backbone, texts=(9, 6))
    held, gradients = [], []
    for recompute in (False, True):
        sizes = {}

        def noting(x, sizes=sizes):
            sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(noting, lambda x: x):
            options = {"relaxation": relaxation, "recompute": recompute}
            gradients.append(loss_and_gradients(backbone, middle(), inputs, **options)[1])
        held.append(sum(sizes.values()))
    for group in GROUPS:
        assert torch.allclose(gradients[0][group], gradients[1][group], rtol=1e-4, atol=1e-8)
    assert held[1] < 0.6 * held[0]


@soft_and_hard
def test_layers_can_be_recomputed_after_the_block(backbone, relaxation):
    inputs, theta = tiny_inputs(backbone, texts=(9, 6)), middle()
    _, wanted = loss_and_gradients(backbone, theta, inputs, relaxation=relaxation)
    theta.zero_grad()
    with reduced(backbone, theta, relaxation=relaxation, recompute=True) as model:
        output = model(**inputs, labels=taught(inputs))
    configs = [layer.self_attn.config for layer in backbone.layers]
    output.loss.backward()
    for group in GROUPS:
        assert torch.allclose(theta.weights[group].grad, wanted[group], rtol=1e-4, atol=1e-7)
    assert all(x.self_attn.config is y for x, y in zip(backbone.layers, configs, strict=True))


def test_checkpointed_layers_are_recomputed_and_hooks_are_not(backbone):
    inputs, theta, seen = tiny_inputs(backbone), middle(), {"layers": 0, "hooks": 0}
    forward = type(backbone.layers[1].mlp).forward

    def counting(module, *args):
        seen["layers"] += 1
        return forward(module, *args)

    def hook(module, args):
        seen["hooks"] += 1

    mlp = backbone.layers[1].mlp
    handle = backbone.layers[1].register_forward_pre_hook(hook)
    try:
        mlp.forward = counting.__get__(mlp)
        loss_and_gradients(backbone, theta, inputs, recompute=True)
        assert seen == {"layers": 2, "hooks": 1}
        loss_and_gradients(backbone, theta, inputs)
        assert seen == {"layers": 3, "hooks": 2}
    finally:
        del mlp.forward
        handle.remove()


@soft_and_hard
def test_eager_is_sdpa(backbone, relaxation):
    inputs = tiny_inputs(backbone, texts=(9, 6))
    eager = tiny_backbone("llava", attn_implementation="eager")
    found = [
        loss_and_gradients(model, middle(), inputs, relaxation=relaxation)[1]
        for model in (backbone, eager)
    ]
    for group in GROUPS:
        assert torch.allclose(found[0][group], found[1][group], rtol=1e-3, atol=1e-7)


@soft_and_hard
def test_a_padded_batch_is_its_samples(backbone, relaxation):
    inputs, theta = tiny_inputs(backbone, texts=(9, 6)), middle()
    _, together = loss_and_gradients(backbone, theta, inputs, relaxation=relaxation)
    alone = [
        loss_and_gradients(backbone, theta, sample, relaxation=relaxation)[1]
        for sample in split(inputs, 2)
    ]
    for group in GROUPS:
        mean = (alone[0][group] + alone[1][group]) / 2
        assert torch.allclose(together[group], mean, rtol=1e-3, atol=1e-7)
        assert not torch.allclose(together[group], alone[0][group], rtol=1e-3, atol=1e-7)


@torch.no_grad()
def test_without_gradients_theta_decodes_as_its_plan(backbone):
    inputs, theta = tiny_inputs(backbone, texts=(9, 6)), middle()
    plan = Plan.from_theta(theta, every_layer=True)
    found, wanted = decoded(backbone, theta, inputs), decoded(backbone, plan, inputs)
    assert torch.equal(found.sequences, wanted.sequences)
    assert gap(found.logits, wanted.logits) <= 1e-5


def test_theta_is_read_anew_at_every_pass(backbone):
    inputs, theta = tiny_inputs(backbone), middle()
    with torch.no_grad(), reduced(backbone, theta) as model:
        before = model(**inputs).logits
        theta.set("c", 0.9)
        after = model(**inputs).logits
    assert not torch.allclose(before, after, atol=1e-3)
    plan = Plan.from_theta(theta, every_layer=True)
    with torch.no_grad(), reduced(backbone, plan) as model:
        assert torch.allclose(model(**inputs).logits, after, atol=1e-5)


def test_several_images_keep_the_fractions(backbone):
    inputs, theta = tiny_inputs(backbone, texts=(9, 6), images=2), middle()
    found, _ = loss_and_gradients(backbone, theta, inputs, relaxation=Relaxation(band=4))
    plan = Plan.from_theta(theta, every_layer=True)
    assert (found.logits - deployed(backbone, plan, inputs)).abs().max() <= 1e-5


@pytest.mark.parametrize("recompute", [False, True])
def test_nothing_is_left_behind(backbone, recompute):
    before, configs = residue(backbone.model), [x.self_attn.config for x in backbone.layers]
    inputs = tiny_inputs(backbone)
    with reduced(backbone, middle(), recompute=recompute):
        assert residue(backbone.model) != before
    search_pass(
        backbone, RelaxedTheta(middle()), inputs=inputs, labels=taught(inputs), predict=False
    )
    with pytest.raises(ZeroDivisionError), reduced(backbone, middle(), recompute=recompute):
        _ = 1 / 0
    assert residue(backbone.model) == before
    assert all(x.self_attn.config is y for x, y in zip(backbone.layers, configs, strict=True))
    assert backbone.layers[0].self_attn.config._attn_implementation == "sdpa"


def test_what_cannot_be_searched_is_refused(backbone):
    with pytest.raises(ConfigError, match=r"2 problems:\n  1. through: input should be"):
        Relaxation(selection="hard", through="keys", alpha=0.0)
    with pytest.raises(ConfigError, match="expected 0 with through 'states'"):
        Relaxation(through="states", band=3)
    with pytest.raises(ConfigError, match=r"a fraction or a count, found 2\.5"):
        Relaxation(band=2.5)
    inputs = tiny_inputs(backbone, texts=(9, 6))
    labels = taught(inputs)
    labels[1] = -100
    with pytest.raises(DataError, match=r"expected an answer.*in samples \[1\]"):
        search_pass(backbone, RelaxedTheta(middle()), inputs=inputs, labels=labels)
    heads, told = torch.zeros(1, 4, 3, 16), {KEYWORD: Keys(torch.ones(1, 3))}
    module = backbone.layers[0].self_attn
    with weighing([backbone.layers[0]]), pytest.raises(BackboneError, match="found a softcap"):
        weighted_attention(module, *[heads] * 3, None, scaling=0.25, softcap=30.0, **told)
