"""Attention mass: tokens that are kept stand for the dropped ones in what attends to them."""

import pytest
import torch
from transformers import DynamicCache

from eos import ConfigError, Operator, Plan, Step
from eos.engine.reduced import Reduction, attached, reduced
from eos.engine.relaxation import Relaxation, RelaxedTheta
from eos.engine.search_pass import labelled_pass
from eos.models.attention import key_feature
from eos.operator.operate import mass_received
from eos.searching.plan_to_theta import theta_of
from eos.testing.tiny import tiny_backbone, tiny_inputs

NEAREST = Operator(tau=0.0, mass=1.0)


@pytest.fixture(scope="module")
def llava():
    return tiny_backbone("llava")


def plan_of(backbone, inputs, *operators, keeps=(0.6, 0.2)):
    tokens = int(backbone.visual_mask(inputs["input_ids"])[0].sum())
    steps = [
        Step(layer=layer, keep=round(frac * tokens), score="key-norm", operator=operator)
        for layer, (frac, operator) in enumerate(zip(keeps, operators, strict=True))
    ]
    return Plan(visual_tokens=tokens, num_layers=4, dims=backbone.dims, steps=steps)


def attended(query, keys, values, weights=None):
    """Attend with one more feature of the heads, as layers do."""
    if weights is not None:
        feature = key_feature(weights[None], 1.0)[0][:, None]
        keys = torch.cat([keys, feature], dim=1)
        query = torch.cat([query, torch.ones(len(query), 1)], dim=1)
    return torch.softmax(query @ keys.T, dim=1) @ values


def test_one_token_with_the_mass_of_equal_ones_is_attended_to_as_all_of_them():
    torch.manual_seed(0)
    states, query = torch.randn(3, 8), torch.randn(5, 8)
    copies = torch.tensor([0, 0, 0, 1, 2, 2])  # the first token stands for three, and so on
    everyone = states[copies]
    kept, dropped = torch.tensor([0, 3, 4]), torch.tensor([1, 2, 5])
    received = mass_received(
        everyone[kept], everyone[dropped], torch.ones(3), tau=0.0, theta=-torch.inf
    )
    assert received.tolist() == [2, 0, 1]
    full = attended(query, everyone, everyone)
    short = attended(query, states, states, weights=1 + received)
    assert torch.allclose(short, full, atol=1e-6)
    assert not torch.allclose(attended(query, states, states), full, atol=1e-2)


def test_no_mass_is_lost_and_a_closed_gate_passes_none_on():
    torch.manual_seed(0)
    anchors, candidates, leaving = torch.randn(2, 4, 8), torch.randn(2, 9, 8), torch.rand(2, 9)
    for tau in (0.0, 0.3, torch.inf, torch.tensor(0.3)):
        found = mass_received(anchors, candidates, leaving, tau=tau, theta=-torch.inf)
        assert torch.allclose(found.sum(-1), leaving.sum(-1), atol=1e-5)
    shut = mass_received(anchors, candidates, leaving, tau=0.3, theta=5.0)
    assert shut.abs().max() < 1e-6


@torch.no_grad()
def test_mass_changes_what_later_layers_see_and_no_mass_does_not(llava):
    inputs = tiny_inputs(llava)
    logits = {}
    for name, operator in {"prune": Operator(), "none": Operator(tau=0.0), "mass": NEAREST}.items():
        with reduced(llava, plan_of(llava, inputs, operator, operator)) as model:
            logits[name] = model(**inputs).logits
    assert torch.equal(logits["none"], logits["prune"])
    assert not torch.allclose(logits["mass"], logits["prune"], atol=1e-3)


@torch.no_grad()
def test_mass_accumulates_over_steps(llava):
    inputs = tiny_inputs(llava)
    plan = plan_of(llava, inputs, NEAREST, NEAREST)
    reduction = Reduction(llava, plan)
    with attached(reduction) as model:
        cache = model(**inputs, use_cache=True).past_key_values
    trace = reduction.decoding.traces[cache]
    totals = [
        trace.stages[layer].weights[trace.stages[layer].visual].sum().item() for layer in (1, 3)
    ]
    assert totals == pytest.approx([plan.visual_tokens] * 2, rel=1e-4)
    assert trace.stages[0].weights is None


def test_theta_runs_as_its_plan_and_gradients_reach_the_assignment(llava):
    inputs = tiny_inputs(llava)
    labels = inputs["input_ids"].masked_fill(llava.visual_mask(inputs["input_ids"]), -100)
    hybrid = Operator(gamma=0.3, tau=0.4, theta=0.1, rho=0.1, nu=0.2, mass=0.8)
    plan = plan_of(llava, inputs, hybrid, hybrid)
    theta = theta_of(plan)
    again = Plan.from_theta(theta, budget=plan.steps[-1].keep)
    assert [step.operator.mass for step in again.steps] == [0.8, 0.8]
    for group in ("tau", "theta"):
        theta.release(group).set(group, 0.4 if group == "tau" else 0.1)
    output = labelled_pass(llava, RelaxedTheta(theta), inputs=inputs, labels=labels)
    with torch.no_grad():
        deployed = labelled_pass(llava, plan, inputs=inputs, labels=labels)
    assert torch.allclose(output.answers, deployed.answers, atol=1e-4)
    output.answers.square().sum().backward()
    gradient = theta.weights["tau"].grad[:2]
    assert (gradient.abs() > 0).all()


def test_a_soft_boundary_is_refused(llava):
    inputs = tiny_inputs(llava)
    theta = theta_of(plan_of(llava, inputs, NEAREST, NEAREST))
    with pytest.raises(ConfigError, match="soft boundary"):
        RelaxedTheta(theta, Relaxation(boundary="soft"))
    RelaxedTheta(theta_of(plan_of(llava, inputs, Operator(), Operator())), Relaxation())


@torch.no_grad()
def test_mass_of_earlier_turns_stays(llava):
    first, second = (tiny_inputs(llava, texts=(5,), seed=seed) for seed in (0, 1))
    plan = plan_of(llava, first, NEAREST, NEAREST)
    reduction, cache = Reduction(llava, plan), DynamicCache()
    with attached(reduction) as model:
        for turn in (first, second):
            turn = {k: v for k, v in turn.items() if k != "attention_mask"}
            model(**turn, past_key_values=cache, use_cache=True)
    stage = reduction.decoding.traces[cache].stages[3]
    assert stage.weights.shape[1] == cache.layers[3].get_seq_length()
    assert stage.weights[stage.visual].sum().item() == pytest.approx(2 * plan.visual_tokens)
    assert (stage.weights[~stage.visual] == 1).all()
