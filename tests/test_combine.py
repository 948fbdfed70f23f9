"""What the authors' own operators make of a step's tokens."""

import pytest
import torch

from eos import ConfigError
from eos.methods.registry import OPERATORS
from eos.methods.sparsevlm import recycled, v1_counts
from eos.methods.tome import bipartite
from eos.operator.combine import unified
from eos.operator.operate import Omega
from eos.operator.scorers import Evidence


def evidence(tokens=40, batch=2, width=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(batch, tokens, width, generator=generator)
    keys = torch.randn(batch, 2, tokens, 4, generator=generator)
    return Evidence(states, keys=keys), torch.rand(batch, tokens, generator=generator)


def test_pruning_changes_no_state():
    given, scores = evidence()
    combined = unified(given, scores, keep=9, omega=Omega(0.0, 1.0, -1.0, 0.0, 0.0), norm="token")
    assert combined.states is None
    assert torch.equal(combined.places, scores.topk(9).indices.sort().values)


@pytest.mark.parametrize("kind", ["recycle", "bipartite"])
@pytest.mark.parametrize("keep", [39, 30, 20, 12])
def test_places_are_distinct_and_ascending(kind, keep):
    given, scores = evidence()
    combined = OPERATORS[kind].combine(given, scores, keep=keep, sizes=None)
    assert combined.places.shape == (2, keep)
    assert combined.states.shape == (2, keep, 8)
    assert (combined.places.diff(dim=1) > 0).all()


@pytest.mark.parametrize("budget", [192, 128, 96, 64])
def test_recycling_finds_the_published_counts(budget):
    tokens = 576
    for kept, clusters in v1_counts(budget):
        given, scores = evidence(tokens, batch=1)
        combined = recycled(given, scores, keep=kept + clusters, sizes=None)
        best = scores.topk(kept).indices.sort().values
        assert torch.equal(combined.states[0, :kept], given.states[0, best[0]])
        tokens = kept + clusters


def test_recycling_refuses_a_count_below_its_clusters():
    given, scores = evidence()
    with pytest.raises(ConfigError, match="expected a count that recycling 40 tokens can reach"):
        recycled(given, scores, keep=1, sizes=None)


def test_merging_preserves_the_weighted_sum_over_several_steps():
    given, scores = evidence()
    first = bipartite(given, scores, keep=25, sizes=None)
    again = Evidence(first.states, keys=given.keys[:, :, :25])
    second = bipartite(again, scores[:, :25], keep=6, sizes=first.sizes)
    assert torch.equal(second.sizes.sum(dim=1), torch.tensor([40.0, 40.0]))
    total = (second.states * second.sizes[..., None]).sum(dim=1)
    assert torch.allclose(total, given.states.sum(dim=1), atol=1e-4)
    forgetful = bipartite(again, scores[:, :25], keep=6, sizes=None)
    total = (forgetful.states * forgetful.sizes[..., None]).sum(dim=1)
    assert not torch.allclose(total, given.states.sum(dim=1), atol=1e-4)


@pytest.mark.parametrize("kind", ["contextual", "prumerge", "prumerge+"])
def test_operators_of_the_vision_tower_say_what_they_need(kind):
    given, scores = evidence()
    with pytest.raises(ConfigError, match="vision tower with a class token"):
        OPERATORS[kind].combine(given, scores, keep=9, sizes=None)
