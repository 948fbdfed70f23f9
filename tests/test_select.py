"""Selection: the hard choice and its relaxations."""

from math import log

import pytest
import torch

from eos import ConfigError
from eos.operator.select import ALPHA, SELECTIONS, keep_probability, keep_weight, select


def scores(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_highest_scores_stay_in_their_order():
    chosen = select(torch.tensor([0.1, 0.9, 0.3, 0.8]), 2)
    assert chosen.kept.tolist() == [1, 3]
    assert chosen.dropped.tolist() == [0, 2]


def test_the_earlier_of_tied_tokens_wins():
    assert select(torch.zeros(600), 3).kept.tolist() == [0, 1, 2]
    assert select(torch.tensor([1.0, 2.0, 1.0, 1.0]), 2).kept.tolist() == [0, 1]


def test_a_batch_is_a_loop():
    q = scores(3, 50)
    together = select(q, 7)
    for i in range(3):
        assert torch.equal(together.kept[i], select(q[i], 7).kept)


@pytest.mark.parametrize("keep", [0, 51, -1])
def test_an_impossible_count_is_refused(keep):
    with pytest.raises(ConfigError, match=f"between 1 and 50 of 50 tokens, found {keep}"):
        select(scores(50), keep)


def test_an_unknown_selection_is_refused():
    with pytest.raises(ConfigError, match=r"\['marginal', 'paper', 'rank'\], found 'soft'"):
        keep_probability(scores(50), torch.tensor(0.5), 25, selection="soft")


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_forward_pass_is_hard(selection):
    q, compression = scores(2, 50), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    chosen = select(q, 15)
    weight = keep_weight(keep_probability(q, compression, 15, selection=selection), chosen)
    assert weight.sum(dim=-1).tolist() == [15, 15]
    assert torch.equal(weight.gather(-1, chosen.kept), torch.ones(2, 15, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(weight.sum(), compression)
    assert gradient < 0  # more compression keeps less


def test_paper_probability_is_equation_12():
    q, keep = scores(40), 10
    compression = torch.tensor(0.75, dtype=torch.float64, requires_grad=True)
    found = keep_probability(q, compression, keep, selection="paper", alpha=5.0)
    standard = (q - q.mean()) / q.std(correction=0)
    expected = torch.sigmoid(5.0 * (standard - standard.sort(descending=True).values[keep - 1]))
    assert torch.allclose(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), compression)
    assert gradient.item() == pytest.approx(-expected.sum().item() / 0.25)


@pytest.mark.parametrize("selection", ["marginal", "rank"])
@pytest.mark.parametrize("compression", [0.02, 0.5, 0.8, 0.95])
def test_marginal_probabilities_sum_to_the_count(compression, selection):
    q = scores(4, 576).float()
    found = keep_probability(q, torch.tensor(compression), 10, selection=selection)
    assert torch.allclose(found.sum(dim=-1), torch.tensor((1 - compression) * 576), rtol=1e-4)


def test_paper_probabilities_do_not():
    # the control: summing to the count is what the marginal variant adds
    found = keep_probability(scores(4, 576), torch.tensor(0.8), 115, selection="paper", alpha=2.0)
    assert not torch.allclose(
        found.sum(dim=-1), torch.tensor(0.2 * 576, dtype=torch.float64), rtol=0.05
    )


def test_marginal_derivative_is_that_of_the_solved_threshold():
    q = scores(60)
    compression = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    cotangent = scores(60, seed=1)

    def objective(compression, q):
        return (keep_probability(q, compression, 24, selection="marginal") * cotangent).sum()

    q_leaf = q.clone().requires_grad_()
    by_compression, by_score = torch.autograd.grad(
        objective(compression, q_leaf), [compression, q_leaf]
    )
    step, direction = 1e-4, scores(60, seed=2)
    with torch.no_grad():
        in_compression = objective(compression + step, q) - objective(compression - step, q)
        in_score = objective(compression, q + step * direction) - objective(
            compression, q - step * direction
        )
    assert by_compression.item() == pytest.approx(in_compression.item() / (2 * step), rel=1e-5)
    numeric = pytest.approx(in_score.item() / (2 * step), abs=1e-5 * by_score.abs().sum().item())
    assert (by_score * direction).sum().item() == numeric


def test_marginal_derivative_sits_at_the_boundary_and_paper_spreads_it():
    q = scores(200)

    def reached_by_compression(selection):
        compression = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        probability = keep_probability(q, compression, 100, selection=selection)
        derivative = [
            torch.autograd.grad(p, compression, retain_graph=True)[0].abs() for p in probability
        ]
        return torch.stack(derivative)

    best = q.argmax()
    marginal, paper = reached_by_compression("marginal"), reached_by_compression("paper")
    boundary = (q - q.median()).abs().argmin()
    assert marginal[best] < 1e-3 * marginal[boundary]
    assert paper[best] > paper[boundary]


def test_ranks_reach_a_like_share_of_the_kept_whatever_the_tails():
    def reached(q, keep, selection):
        """How many tokens share nine tenths of the derivative."""
        compression = torch.tensor(1 - keep / len(q), dtype=torch.float64, requires_grad=True)
        found = keep_probability(q, compression, keep, selection=selection)
        each = [torch.autograd.grad(p, compression, retain_graph=True)[0] for p in found]
        share = torch.stack(each).abs().sort(descending=True).values.cumsum(0) / len(q)
        return int((share < 0.9).sum()) + 1

    short, long = scores(400), scores(400).mul(3).exp()
    for keep in (200, 40):
        # nine tenths of a sigmoid's slope lie within log 19 of its middle, in units of K / 2α
        expected = 2 * log(19) * keep / (2 * ALPHA)
        assert reached(short, keep, "rank") == pytest.approx(expected, abs=1)
        assert reached(long, keep, "rank") == reached(short, keep, "rank")
    # the control: by scores, a threshold among many like ones reaches most of the tokens
    assert reached(long, 200, "marginal") > 3 * reached(short, 200, "marginal")


@pytest.mark.parametrize("selection", ["marginal", "rank"])
@pytest.mark.parametrize("compression", [0.0, 1.0])
@pytest.mark.parametrize("q", [scores(50), torch.zeros(50, dtype=torch.float64)])
def test_marginal_stays_finite_at_the_ends_and_without_contrast(compression, q, selection):
    value = torch.tensor(compression, dtype=torch.float64, requires_grad=True)
    probability = keep_probability(q, value, 25, selection=selection)
    (gradient,) = torch.autograd.grad(probability.sum(), value)
    assert probability.isfinite().all()
    assert gradient.isfinite()
