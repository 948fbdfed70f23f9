"""A soft boundary: probabilities as weights, and the deployed pass as the sharp limit."""

import pytest
import torch

from eos import ConfigError, Plan, Theta
from eos.engine import relaxed_steps
from eos.engine.reduced import reduced
from eos.engine.relaxation import Relaxation
from eos.models.attention import key_feature
from eos.models.families import FAMILIES
from eos.operator.select import keep_probability
from eos.operator.soft import LEAST, PARTIAL, soft_choice
from eos.testing.tiny import tiny_backbone, tiny_inputs
from tests.test_contract import tokens_of
from tests.test_relaxation import SITES, check
from tests.test_search_pass import (
    answer_loss,
    deployed,
    loss_and_gradients,
    middle,
    precise,
    taught,
)

SHARP = 1e6
selections = pytest.mark.parametrize("selection", ["marginal", "rank"])


def scores(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@selections
def test_weighed_tokens_are_kept_up_to_the_count(selection):
    q, weights = scores(3, 60), scores(3, 60, seed=1).sigmoid()
    options = {"selection": selection, "weights": weights}
    found = keep_probability(q, torch.tensor(0.4), 20, **options)
    wanted = 0.6 * weights.sum(dim=1)
    assert torch.allclose((weights * found).sum(dim=1), wanted)
    plain = keep_probability(q, torch.tensor(0.4), 20, selection=selection)
    assert not torch.allclose((weights * plain).sum(dim=1), wanted, rtol=1e-2)
    # tokens that count for nothing change nothing
    more, nothing = torch.cat([q, scores(3, 9, seed=2) * 50], dim=1), torch.zeros(3, 9)
    options["weights"] = torch.cat([weights, nothing], dim=1)
    same = keep_probability(more, torch.tensor(0.4), 20, **options)[:, :60]
    assert torch.allclose(same, found)


@selections
def test_weighed_probabilities_have_the_derivative_of_the_threshold(selection):
    q, weights, cotangent = scores(60), scores(60, seed=1).sigmoid(), scores(60, seed=2)
    compression = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)

    def objective(value):
        found = keep_probability(q, value, 24, selection=selection, weights=weights)
        return (found * cotangent).sum()

    (found,) = torch.autograd.grad(objective(compression), compression)
    with torch.no_grad():
        numeric = (objective(compression + 1e-4) - objective(compression - 1e-4)) / 2e-4
    assert found.item() == pytest.approx(numeric.item(), rel=1e-4)


def chosen(q, before=None, *, alpha=10.0, compression=0.5, entering=None, keep=20, **options):
    before = torch.ones_like(q) if before is None else before
    options = {"selection": "rank", "alpha": alpha, "keep": keep, **options}
    entering = q.shape[1] if entering is None else entering
    return soft_choice(q, before, compression=compression, entering=entering, **options)


def test_a_choice_keeps_the_likely_and_sums_to_the_count():
    q = scores(2, 60)
    found = chosen(q)
    kept, staying = found.selected.kept, found.staying
    assert staying.shape[1] > 20
    for row in range(2):
        assert set(kept[row].tolist()) <= set(staying[row].tolist())
        assert set(kept[row].tolist()) == set(q[row].topk(20).indices.tolist())
        values = found.weights[row, staying[row]]
        assert values.min() > PARTIAL
        assert values.sum() == pytest.approx(20, abs=0.1)
    assert chosen(q, alpha=SHARP).staying.shape[1] == 20
    half = chosen(q.bfloat16())  # sums of weights are not those of half precision
    assert half.weights.dtype == torch.float32
    assert half.weights.sum(dim=1).tolist() == pytest.approx([20, 20], abs=0.01)


def test_the_count_is_the_deployed_one_and_moves_with_the_compression():
    q, before = scores(1, 60), torch.ones(1, 60, dtype=torch.float64)
    compression = torch.tensor(0.66, dtype=torch.float64, requires_grad=True)  # 20.4: 20 are kept
    found = chosen(q, before, compression=compression)
    (slope,) = torch.autograd.grad(found.weights.sum(), compression)
    assert found.weights.sum().item() == pytest.approx(20, abs=0.1)
    assert slope.item() == pytest.approx(-60, rel=0.02)  # but for those too unlikely to stay
    # a site that drops nothing yet has a derivative, too
    closed = chosen(q, before, compression=compression, keep=60)
    (slope,) = torch.autograd.grad(closed.weights.sum(), compression)
    assert closed.weights.sum().item() == pytest.approx(60, abs=0.02)
    assert slope.item() == pytest.approx(-60, rel=1e-3)


def test_a_sample_is_filled_up_with_what_counts_for_nothing():
    wide, narrow = torch.linspace(0, 1, 60, dtype=torch.float64), torch.zeros(60).double()
    narrow[:20] = 1.0
    found = chosen(torch.stack([wide, narrow]), selection="marginal", alpha=10.0)
    values = found.weights.gather(1, found.staying)
    assert (values[0] > PARTIAL).all()
    assert (values[1] > PARTIAL).sum() == 20
    assert (values[1].sort(descending=True).values[20:] == LEAST).all()


def test_operators_act_on_as_many_as_a_hard_boundary_leaves():
    q, before = scores(1, 30), torch.ones(1, 30, dtype=torch.float64)
    before[0, 20:] = torch.linspace(0.4, 0.03, 10)
    q[0, 25] = 99.0  # the best, of those kept in part
    found = chosen(q, before, entering=20, keep=8)
    selected = found.selected
    assert selected.kept.shape[1] == 8
    assert selected.dropped.shape[1] == 12
    assert not (selected.kept >= 20).any()
    assert 25 in found.staying[0].tolist()
    assert found.weights[0, 25].item() == pytest.approx(before[0, 25].item(), rel=1e-2)


def test_a_feature_of_any_weight_is_its_logarithm():
    weights = torch.tensor([[1.0, 0.5, 1e-3, 1e-30]], requires_grad=True)
    feature = key_feature(weights, 0.25)
    expected = weights.detach().log() / 0.25
    assert torch.allclose(feature[0, :3], expected[0, :3])
    assert feature[0, 3].item() == -128.0  # clamped: finite
    (slopes,) = torch.autograd.grad(feature.sum(), weights)
    assert torch.allclose(slopes[0, :3], 4 / weights.detach()[0, :3])
    assert slopes.isfinite().all()


@selections
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_sharp_boundary_is_the_deployed_pass(kind, selection):
    backbone = tiny_backbone(kind)
    inputs = tiny_inputs(backbone, texts=(9, 6))
    theta = middle(tokens_of(backbone, inputs), input_site=True)
    plan = Plan.from_theta(theta, every_layer=True)
    labels = taught(inputs)
    wanted = answer_loss(deployed(backbone, plan, inputs), labels).item()

    def loss(alpha):
        soft = Relaxation(boundary="soft", selection=selection, alpha=alpha)
        found, gradients = loss_and_gradients(backbone, theta, inputs, relaxation=soft)
        assert all(gradient.isfinite().all() for gradient in gradients.values())
        return answer_loss(found.logits, labels).item()

    assert loss(SHARP) == pytest.approx(wanted, abs=1e-5)
    assert loss(10.0) != pytest.approx(wanted, abs=1e-4)


def test_without_gradients_the_boundary_is_hard():
    backbone = tiny_backbone("llava")
    inputs, theta = tiny_inputs(backbone, texts=(9, 6)), middle()
    plan = Plan.from_theta(theta, every_layer=True)
    wanted, soft = deployed(backbone, plan, inputs), Relaxation(boundary="soft")
    with reduced(backbone, theta, relaxation=soft) as model:
        with torch.no_grad():
            found = model(**inputs, labels=taught(inputs)).logits
        recorded = model(**inputs, labels=taught(inputs)).logits
    assert torch.allclose(found, wanted, atol=1e-5)
    assert not torch.allclose(recorded, wanted, atol=1e-3)


def test_every_weight_has_the_derivative_of_a_true_attention_weight(monkeypatch):
    """Two sites: what the first one's weights do, after the second has multiplied its own."""
    backbone, inputs = precise(monkeypatch)
    sample = {name: value[:1] for name, value in inputs.items()}
    theta = Theta(4, visual_tokens=36).double()
    theta.fix("g", 0.0).fix("g", 1.0, layers=[*SITES]).fix("gamma", 0.0).fix("rho", 0.0)
    theta.set("c", 0.6)
    seen, choose = [], relaxed_steps.soft_choice

    def watching(*args, **options):
        choice = choose(*args, **options)
        choice.weights.retain_grad()
        seen.append((args[1], choice))
        return choice

    monkeypatch.setattr(relaxed_steps, "soft_choice", watching)
    labels, soft = taught(sample), Relaxation(boundary="soft", alpha=6.0)
    with reduced(backbone, theta, relaxation=soft) as model:
        answer_loss(model(**sample, labels=labels).logits, labels).backward()
    (_, one), (before, two) = seen
    stays = one.staying[0].sort().values  # the order in which the second site sees them
    first, second = torch.zeros(36).double(), torch.zeros(36).double()
    first[stays] = one.weights[0, stays].detach().double()
    on = two.staying[0]
    second[stays[on]] = (two.weights / before)[0, on].detach().double()
    inside = (first > 0.05) & (first < 0.95)
    assert inside.sum() >= 4
    assert ((second > 0.05) & (second < 0.95)).any()
    heard = torch.zeros(36, dtype=torch.bool).index_fill(0, stays, True)
    check(backbone, sample, one.weights, first, second, heard=heard)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"through": "states"}, "through: expected 'logits' with a soft boundary"),
        ({"selection": "paper"}, "selection: expected 'rank' or 'marginal' with a soft boundary"),
        ({"band": 3}, "band: expected 0 with a soft boundary, found 3"),
    ],
)
def test_what_does_not_go_with_a_soft_boundary_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Relaxation(boundary="soft", **options)
    Relaxation(boundary="hard", **options)
    with pytest.raises(ConfigError, match="should be 'hard' or 'soft'"):
        Relaxation(boundary="round")
