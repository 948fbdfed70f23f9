"""Weights behind the choices: their derivatives are those of true attention weights."""

import pytest
import torch

from eos import Theta
from eos.engine import relaxed_steps
from eos.engine.reduced import reduced
from eos.engine.relaxation import Relaxation
from eos.engine.relaxed_steps import carried
from eos.engine.stages import Stage
from eos.models.attention import key_feature
from eos.models.backbone import LayerCall
from eos.models.random_llava import random_llava, random_prompt
from tests.test_search_pass import answer_loss, precise, taught

SITES = (0, 2)


@pytest.fixture
def watched(monkeypatch):
    """Run Θ with two pruning sites; note each site's weights and whom it carries on."""
    backbone, inputs = precise(monkeypatch)
    sample = {name: value[:1] for name, value in inputs.items()}  # the longer: no padding
    theta = Theta(4, visual_tokens=36).double()
    theta.fix("g", 0.0).fix("g", 1.0, layers=[*SITES]).fix("gamma", 0.0).fix("rho", 0.0)
    theta.set("c", 0.6)

    def run(band):
        seen, weigh, carry = [], relaxed_steps.site_weights, relaxed_steps.carried

        def weighing(*args, **options):
            weights = weigh(*args, **options)
            weights.retain_grad()
            seen.append(weights)
            return weights

        def carrying(stage, stays, *args, **options):
            stays, factors = carry(stage, stays, *args, **options)
            seen.append((stage, stays, factors))
            return stays, factors

        labels, options = taught(sample), {"relaxation": Relaxation(band=band)}
        with monkeypatch.context() as patch, reduced(backbone, theta, **options) as model:
            patch.setattr(relaxed_steps, "site_weights", weighing)
            patch.setattr(relaxed_steps, "carried", carrying)
            answer_loss(model(**sample, labels=labels).logits, labels).backward()
        return seen

    return backbone, sample, run


def oracle(backbone, inputs):
    """The loss as a function of what all visual keys weigh after the first and the second site.

    Nobody is dropped: a token of weight 0 is attended to by nobody.
    """
    visual = (inputs["input_ids"][0] == 100).nonzero().flatten()
    with torch.no_grad():
        states = backbone.model(**inputs, output_hidden_states=True).hidden_states[1]
    length = states.shape[1]
    causal = torch.full((length, length), -torch.inf, dtype=torch.float64).triu(1)
    rotary = backbone.rotary(states, torch.arange(length)[None], 0)

    @torch.no_grad()
    def loss(first, second):
        x = states
        for index in (1, 2, 3):
            weights = torch.ones(length, dtype=torch.float64)
            weights[visual] = first if index < 3 else first * second
            mask = (causal + weights.log())[None, None]
            x = backbone.run_layer(LayerCall(index, x, mask, rotary, None, None))
        labels = taught(inputs)
        logits = backbone.model.lm_head(backbone.final_norm(x))
        return answer_loss(logits, labels).item()

    return loss


def slope(function, value, step=1e-4):
    """A derivative, from one side where the other does not exist."""
    if value:
        return (function(value + step) - function(value - step)) / (2 * step)
    return (4 * function(step) - 3 * function(0.0) - function(2 * step)) / (2 * step)


def test_without_a_band_the_kept_answer_and_the_others_are_silent(watched):
    backbone, inputs, run = watched
    first, second = run(band=0)
    kept = first[0] > 0
    hard = torch.zeros(36, dtype=torch.float64).masked_scatter(kept, second[0].double().detach())
    check(backbone, inputs, first, kept.double(), hard, heard=kept)


def test_kept_and_carried_tokens_have_the_derivative_of_their_attention_weight(watched):
    backbone, inputs, run = watched
    first, (before, stays, _), second, (after, still, factors) = run(band=7)
    kept, visual = first[0] > 0, before.visual[0]
    carries = stays[0][visual] & ~kept
    assert int(carries.sum()) == 7
    # of the visual tokens at the second site, which are kept; those carried go on or are lost
    here = after.slots[0][after.visual[0]] - before.slots[0][visual][0]
    real = after.present[0][after.visual[0]]
    hard = torch.zeros(36, dtype=torch.float64)
    hard[here[~real]] = factors[0][~real].double()
    hard[here[real]] = second[0].double().detach()
    assert 0 < hard[carries].sum() < 7  # some go on and some are lost
    heard = kept | carries
    check(backbone, inputs, first, kept.double(), hard, heard=heard)
    goes_on = after.slots[0][still[0] & after.visual[0]] - before.slots[0][visual][0]
    assert set(here[~real][factors[0][~real] > 0].tolist()) <= set(goes_on.tolist())


def check(backbone, inputs, weights, first, second, *, heard):
    loss, found = oracle(backbone, inputs), weights.grad[0].double()
    numeric = []
    for token in range(36):

        def moved(value, token=token):
            return loss(first.index_fill(0, torch.tensor(token), value), second)

        numeric.append(slope(moved, float(first[token])))
    numeric = torch.tensor(numeric, dtype=torch.float64)
    scale = numeric.abs().max()
    assert torch.allclose(found[heard], numeric[heard], rtol=1e-3, atol=1e-5 * scale.item())
    assert (found[~heard] == 0).all()
    assert (numeric[~heard].abs() > 1e-3 * scale).any()  # the control: they would matter


def test_a_feature_adds_the_logarithm_and_its_derivative():
    weights = torch.tensor([[1.0, 0.0, 1.0]], requires_grad=True)
    feature = key_feature(weights, 0.25)
    assert feature.tolist() == [[0.0, -128.0, 0.0]]
    (slopes,) = torch.autograd.grad(feature.sum(), weights)
    assert slopes[0, 0].item() == 4.0  # of log k / scaling at 1
    assert slopes[0, 1].item() == pytest.approx(4.0 * torch.exp(torch.tensor(32.0)).item())


def test_a_band_prefers_the_survivors_and_forgets_the_lost():
    # places 1-6 are visual; 5 and 6 were carried to here, the site keeps 1 and 2
    visual = torch.tensor([[False, True, True, True, True, True, True]])
    weights = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]])
    stage = Stage(torch.arange(7)[None], visual, weights=weights)
    stays = torch.tensor([[True, True, True, False, False, False, False]])
    scores, everyone = torch.tensor([[9.0, 8.0, 5.0, 4.0, 8.5, 7.0]]), torch.arange(1, 7)[None]
    found, factors = carried(stage, stays, scores, everyone=everyone, band=2)
    assert found[0].tolist() == [True, True, True, True, False, True, False]
    assert factors[0].tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]


def test_a_band_carries_no_more_than_asked():
    backbone = random_llava("tiny")
    theta = Theta.start(4, visual_tokens=36, budget=6)
    inputs = random_prompt(backbone, text_tokens=8, batch=2)
    lengths = {}
    for band in (0, 5, 0.5):
        with reduced(backbone, theta, relaxation=Relaxation(band=band)) as model:
            states = model(**inputs, output_hidden_states=True).hidden_states
        lengths[band] = [x.shape[1] for x in states]
    plain = theta.retain_schedule()
    assert lengths[0][1:4] == [8 + plain[i] for i in range(3)]
    for band, count in ((5, 5), (0.5, 18)):
        assert all(a <= b <= a + count for a, b in zip(lengths[0], lengths[band], strict=True))
        assert lengths[band][3] == lengths[0][3] + min(count, 36 - plain[2])
