"""One reduction step as a pure function of tokens: select, gather, operate."""

from math import inf

import pytest
import torch

from eos.operator.combine import fold, unified
from eos.operator.operate import Omega, unified_operator
from eos.operator.scorers import Evidence
from eos.operator.select import select
from eos.tokens import take

PRUNE = Omega(0.0, 1.0, -inf, 0.0, 0.0)
HYBRID = Omega(0.3, 0.22, 0.1, 0.4, 0.5)


def tokens(*batch):
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(*batch, 20, 8, generator=generator)
    return states, torch.rand(*batch, 20, generator=generator)


@pytest.mark.parametrize("batch", [(), (1,), (3,)])
def test_pruned_tokens_keep_their_places_and_states(batch):
    states, scores = tokens(*batch)
    combined = unified(Evidence(states), scores, keep=6, omega=PRUNE, norm="token")
    assert combined.states is None  # those at the places, as they were
    assert torch.equal(combined.places, select(scores, 6).kept)
    assert (combined.places.diff(dim=-1) > 0).all()


@pytest.mark.parametrize("batch", [(), (1,), (3,)])
def test_what_is_not_kept_reaches_the_operator(batch):
    states, scores = tokens(*batch)
    combined = unified(Evidence(states), scores, keep=6, omega=HYBRID, norm="token")
    selected = select(scores, 6)
    expected = unified_operator(
        take(states, selected.kept),
        take(states, selected.dropped),
        scores.gather(-1, selected.dropped),
        **HYBRID._asdict(),
    )
    assert torch.equal(combined.states, expected)
    assert not torch.equal(combined.states, take(states, selected.kept))


def test_keeping_everything_changes_nothing():
    states, scores = tokens(2)
    assert fold(states, scores, select(scores, 20), omega=HYBRID) is None


def test_pruning_is_independent_of_what_is_pruned():
    states, scores = tokens(2)
    selected = select(scores, 6)
    blank = states.scatter(-2, selected.dropped.unsqueeze(-1).expand(-1, -1, 8), torch.nan)
    assert fold(blank, scores, selected, omega=PRUNE) is None
    assert fold(blank, scores, selected, omega=HYBRID).isnan().any()
