"""The objective, term by term."""

import pytest
import torch

from eos import ConfigError, Plan, Theta
from eos.engine.reference import Aligned
from eos.engine.relaxation import RelaxedTheta
from eos.engine.search_pass import PassOutput
from eos.searching.gradients import search_losses
from eos.searching.objective import Objective, alignment, default_flops, losses_of
from eos.space import cost
from eos.space.cost import LLAMA_7B
from eos.space.theta import GROUPS
from eos.testing.tiny import tiny_backbone, tiny_inputs
from tests.test_contract import split
from tests.test_search_pass import answer_loss, deployed, middle, taught

TERMS = ["cross_entropy", "align", "budget", "layers", "flops"]


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone("llava")


def losses(backbone, theta, inputs, **settings):
    objective = Objective(**{"align_layers": [1, 2], **settings})
    given = {"inputs": inputs, "labels": taught(inputs), "objective": objective, "budget": 6}
    return search_losses(backbone, RelaxedTheta(theta), **given)


def penalties(theta, budget=64, **settings):
    given = {"objective": Objective(**settings), "budget": budget, "dims": LLAMA_7B}
    return losses_of(PassOutput(), theta, **given)


def start(**options):
    return Theta.start(32, visual_tokens=576, budget=64, **options)


def test_cross_entropy_is_the_models_own_on_the_answers(backbone):
    inputs, theta = tiny_inputs(backbone, texts=(9, 6)), middle()
    logits = deployed(backbone, Plan.from_theta(theta, every_layer=True), inputs)
    wanted = answer_loss(logits, taught(inputs))
    found = losses(backbone, theta, inputs).cross_entropy
    assert torch.allclose(found, wanted, atol=1e-5)
    assert not torch.allclose(found, answer_loss(logits, taught(inputs, answer=4)), atol=1e-3)


def test_alignment_is_the_mean_over_tokens_samples_and_layers():
    full = torch.zeros(2, 3, 4)
    reduced = torch.stack([torch.full((3, 4), 1.0), torch.full((3, 4), 2.0)])
    counted = torch.tensor([[True, True, True], [True, False, False]])
    reduced[1, 1:] = torch.nan  # what does not count is not looked at
    reduced = torch.where(counted[..., None], reduced, 7.0)
    pair = Aligned(4, reduced, full, counted)
    # squared norms are 4 and 16, their mean 10; three layers of which two do not differ yet
    assert alignment([pair], layers=3).item() == pytest.approx(10 / 3)
    assert alignment([pair, pair], layers=2).item() == pytest.approx(10)


def test_relative_alignment_weighs_layers_alike():
    full = torch.tensor([[[3.0, 4.0], [0.0, 5.0]]])
    counted = torch.ones(1, 2, dtype=torch.bool)
    small, large = (Aligned(4, s * full * 1.1, s * full, counted) for s in (1.0, 100.0))
    each = [alignment([pair], layers=1, relative=True).item() for pair in (small, large)]
    assert each == pytest.approx([0.01, 0.01], rel=1e-4)
    assert alignment([large], layers=1).item() > 1000 * alignment([small], layers=1).item()


@pytest.mark.parametrize("align_on", ["text", "visual", "both"])
def test_a_batch_costs_what_its_samples_cost(backbone, align_on):
    inputs, theta = tiny_inputs(backbone, texts=(9, 6)), middle()
    together = losses(backbone, theta, inputs, align_on=align_on).as_floats()
    alone = [losses(backbone, theta, x, align_on=align_on).as_floats() for x in split(inputs, 2)]
    for name in TERMS:
        assert together[name] == pytest.approx((alone[0][name] + alone[1][name]) / 2, rel=1e-4)
    assert alone[0]["align"] != pytest.approx(alone[1]["align"], rel=1e-2)


def test_the_total_is_the_weighted_sum(backbone):
    weights = {"ce_weight": 0.7, "align_weight": 0.3, "budget_weight": 2.0}
    weights |= {"layers_weight": 5.0, "flops_weight": 11.0}
    found = losses(
        backbone, middle(), tiny_inputs(backbone), max_layers=1, max_flops=0.1, **weights
    )
    terms = found.as_floats()
    assert all(terms[name] > 0 for name in TERMS)
    total = sum(w * terms[name] for w, name in zip(weights.values(), TERMS, strict=True))
    assert terms["total"] == pytest.approx(total, rel=1e-5)


def test_every_group_learns_from_the_task_and_the_constraints_only_move_counts(backbone):
    inputs = tiny_inputs(backbone, texts=(9, 6))
    for name in TERMS:
        theta = middle()
        settings = {"max_layers": 1, "max_flops": 0.1}
        getattr(losses(backbone, theta, inputs, **settings), name).backward()
        moved = {
            group
            for group in GROUPS
            if theta.weights[group].grad is not None and theta.weights[group].grad.any()
        }
        limits = {"budget": {"g", "c"}, "layers": {"g"}, "flops": {"g", "c"}}
        assert moved == limits.get(name, set(GROUPS)), name


def test_constraints_are_one_sided():
    theta = start()
    met = penalties(theta, max_layers=3.9, max_flops=0.9)
    assert met.as_floats() == dict.fromkeys(["total", *TERMS], 0.0)
    # Eq. 13: [N/B - 1]² and [Σg - C]²
    over = penalties(theta, budget=32, max_layers=2, max_flops=0.2).as_floats()
    assert over["budget"] == pytest.approx((64 / 32 - 1) ** 2, rel=1e-3)
    assert over["layers"] == pytest.approx((theta.active_layers.item() - 2) ** 2, rel=1e-5)
    ratio = cost.flops_ratio(theta.expected_schedule(), LLAMA_7B, tokens=576, text_tokens=64)
    assert over["flops"] == pytest.approx((ratio.item() / 0.2 - 1) ** 2, rel=1e-5)


def test_flops_are_by_default_those_of_pruning_at_the_papers_layers():
    limit = default_flops(start(), 64, dims=LLAMA_7B, text_tokens=64)
    theta = Theta(32, visual_tokens=576).fix("g", 0.0).fix("g", 1.0, layers=[2, 6, 15])
    theta.fix("c", 1 - (64 / 576) ** (1 / 3))
    ratio = cost.flops_ratio(theta.expected_schedule(), LLAMA_7B, tokens=576, text_tokens=64)
    assert limit == pytest.approx(ratio.item(), rel=5e-3)
    # reducing at the last layer meets the budget and saves nothing: only this term objects
    late = Theta(32, visual_tokens=576).fix("g", 0.0).fix("g", 1.0, layers=[31])
    terms = penalties(late.fix("c", 1 - 64 / 576)).as_floats()
    assert terms["budget"] == pytest.approx(0.0, abs=1e-9)
    assert terms["layers"] == 0.0
    assert terms["flops"] > 0.5


def test_a_weight_of_zero_skips_the_work(backbone, monkeypatch):
    inputs = tiny_inputs(backbone)

    def forbidden(*args, **options):
        raise AssertionError("this work was to be skipped")

    with monkeypatch.context() as patch:
        patch.setattr(type(backbone), "run_layer", forbidden)
        assert losses(backbone, middle(), inputs, align_weight=0).align == 0
        with pytest.raises(AssertionError, match="to be skipped"):
            losses(backbone, middle(), inputs)
    with monkeypatch.context() as patch:
        patch.setattr(backbone.model.lm_head, "forward", forbidden)
        found = losses(backbone, middle(), inputs, ce_weight=0)
        assert found.cross_entropy == 0
        assert found.align > 0
        with pytest.raises(AssertionError, match="to be skipped"):
            losses(backbone, middle(), inputs)
    with monkeypatch.context() as patch:
        patch.setattr(type(backbone.model), "forward", forbidden)
        assert losses(backbone, middle(), inputs, ce_weight=0, align_weight=0).total >= 0


def test_impossible_objectives_are_refused():
    with pytest.raises(ConfigError, match=r"align_weight: .* 0, found -1"):
        Objective(align_weight=-1)
    with pytest.raises(ConfigError, match="2 problems"):
        Objective(max_layers=0, max_flops=0.0)
    with pytest.raises(ConfigError, match=r"a preset as in fastv@64, found 'nobody@64'"):
        Objective(max_flops="nobody@64")
