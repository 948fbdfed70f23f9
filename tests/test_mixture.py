"""Mixtures of scorers: how they are written, what they add up, and that models run them."""

import pytest
import torch

import eos
from eos import ConfigError, Plan, PlanError, Step
from eos.methods.registry import SCORERS
from eos.space.mixture import add_ranks, components, mixture
from eos.testing.tiny import tiny_backbone, tiny_inputs


def test_weights_sum_to_one_and_names_come_back():
    assert components("2*diversity+2*all-text") == {"diversity": 0.5, "all-text": 0.5}
    weights = {"diversity": 0.7, "all-text": 0.2, "last-query": 0.1}
    assert components(mixture(weights)) == pytest.approx(weights)
    assert all(components(name) == {name: 1.0} for name in SCORERS)


@pytest.mark.parametrize(
    ("score", "words"),
    [
        ("diversty", "did you mean 'diversity'"),
        ("0.5*diversity+0.5*nothing", "expected one of"),
        ("-1*diversity", "positive weight"),
        ("x*diversity", "positive weight"),
        ("diversity+diversity", "different scorers"),
    ],
)
def test_a_name_that_means_nothing_is_refused(score, words):
    with pytest.raises(ConfigError, match=words):
        components(score)
    with pytest.raises(PlanError, match=r"steps\.0\.score"):
        Plan(visual_tokens=9, num_layers=2, steps=({"layer": 0, "keep": 3, "score": score},))


def test_ranks_are_added_not_scores():
    huge, small = torch.tensor([[3e6, 2e6, 1e6]]), torch.tensor([[1.0, 2.0, 3.0]])
    assert add_ranks([huge, small], [0.5, 0.5]).tolist() == [pytest.approx([1 / 3] * 3)]
    assert add_ranks([huge, small], [0.4, 0.6]).argmax().item() == 2
    assert (0.4 * huge + 0.6 * small).argmax().item() == 0  # what adding scores would say


def test_ties_share_a_rank():
    tied = torch.tensor([[0.0, 0.0, 5.0, 0.0]])
    assert add_ranks([tied], [1.0]).tolist() == [[0.0, 0.0, 0.75, 0.0]]


def kept(backbone, inputs, score):
    """Logits after a step of this score: they tell which tokens were kept."""
    tokens = int(backbone.visual_mask(inputs["input_ids"])[0].sum())
    step = Step(layer=0, keep=3, score=score)
    plan = Plan(visual_tokens=tokens, num_layers=backbone.num_layers, steps=(step,))
    with torch.no_grad(), eos.reduced(backbone, plan) as model:
        return model(**inputs).logits


def test_a_model_runs_a_mixture_of_scorers_with_different_query_rows():
    backbone = tiny_backbone("llava")
    inputs = tiny_inputs(backbone, texts=(9, 9))
    both = "0.5*last-query+0.5*diversity"
    alone = {name: kept(backbone, inputs, name) for name in ("last-query", "diversity")}
    assert not torch.equal(alone["last-query"], alone["diversity"])
    assert torch.equal(kept(backbone, inputs, "0.999*last-query+0.001*random"), alone["last-query"])
    assert torch.equal(
        kept(backbone, inputs, both), kept(backbone, inputs, "0.5*diversity+0.5*last-query")
    )


def test_before_the_decoder_every_scorer_of_a_mixture_must_work():
    backbone = tiny_backbone("llava")
    tokens = int(backbone.visual_mask(tiny_inputs(backbone)["input_ids"])[0].sum())
    sizes = {"visual_tokens": tokens, "num_layers": backbone.num_layers}
    step = {"layer": -1, "keep": 2}
    fine = Plan(**sizes, steps=({**step, "score": "0.5*diversity+0.5*dissimilarity"},))
    with eos.reduced(backbone, fine):
        pass
    early = Plan(**sizes, steps=({**step, "score": "0.5*diversity+0.5*all-text"},))
    with pytest.raises(PlanError, match="without text"), eos.reduced(backbone, early):
        pass
