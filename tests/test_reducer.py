"""One reduction step."""

from math import inf

import pytest
import torch

from eos import ConfigError
from eos.operator.operate import Omega, unified_operator
from eos.operator.reducer import reduce_tokens
from eos.tokens import Tokens, take

PRUNE = Omega(0.0, 1.0, -inf, 0.0, 0.0)
HYBRID = Omega(0.3, 0.22, 0.1, 0.4, 0.5)


def tokens(*batch):
    generator = torch.Generator().manual_seed(0)
    positions = torch.arange(5, 25).expand(*batch, 20)
    return Tokens(torch.randn(*batch, 20, 8, generator=generator), positions), torch.rand(
        *batch, 20, generator=generator
    )


@pytest.mark.parametrize("batch", [(), (1,), (3,)])
def test_kept_tokens_keep_their_order_and_positions(batch):
    given, scores = tokens(*batch)
    reduced, selected = reduce_tokens(given, scores, keep=6, omega=PRUNE)
    assert len(reduced) == 6
    assert torch.equal(reduced.states, take(given.states, selected.kept))
    assert torch.equal(reduced.positions, selected.kept + 5)
    assert (reduced.positions.diff(dim=-1) > 0).all()


def test_what_is_not_kept_reaches_the_operator():
    given, scores = tokens(2)
    reduced, selected = reduce_tokens(given, scores, keep=6, omega=HYBRID)
    expected = unified_operator(
        take(given.states, selected.kept),
        take(given.states, selected.dropped),
        scores.gather(-1, selected.dropped),
        **HYBRID._asdict(),
    )
    assert torch.equal(reduced.states, expected)


def test_keeping_everything_changes_nothing():
    given, scores = tokens(2)
    assert reduce_tokens(given, scores, keep=20, omega=HYBRID)[0] is given


def test_pruning_is_independent_of_what_is_pruned():
    given, scores = tokens(2)
    reduced, selected = reduce_tokens(given, scores, keep=6, omega=PRUNE)
    blank = given.states.scatter(-2, selected.dropped.unsqueeze(-1).expand(-1, -1, 8), torch.nan)
    again, _ = reduce_tokens(Tokens(blank, given.positions), scores, keep=6, omega=PRUNE)
    assert torch.equal(again.states, reduced.states)
    merged, _ = reduce_tokens(Tokens(blank, given.positions), scores, keep=6, omega=HYBRID)
    assert merged.states.isnan().any()


def test_positions_must_fit_the_states():
    with pytest.raises(ConfigError, match=r"states \[20, 8\] and positions \[19\]"):
        Tokens(torch.zeros(20, 8), torch.arange(19))
