"""Scorers and the choice of raters."""

import pytest
import torch

from eos import ConfigError
from eos.methods.registry import SCORERS
from eos.operator.scorers import Evidence, text_raters


def evidence(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Evidence(
        states=torch.randn(2, 10, 8, generator=generator),
        attention=torch.rand(2, 4, 3, 10, generator=generator),
        keys=torch.randn(2, 4, 10, 2, generator=generator),
        cls_attention=torch.rand(2, 4, 10, generator=generator),
        gravity=1 + torch.rand(2, 3, 10, generator=generator),
        text=(
            torch.randn(2, 12, 8, generator=generator),
            torch.rand(2, 12, generator=generator),
            torch.randn(2, 10, 8, generator=generator),
        ),
        keep=6,
    )


@pytest.mark.parametrize("name", SCORERS)
def test_every_scorer_gives_one_finite_score_a_token(name):
    found = SCORERS[name].score(evidence())
    assert found.shape == (2, 10)
    assert found.isfinite().all()
    assert torch.equal(found, SCORERS[name].score(evidence()))
    assert found.unique().numel() > 2


def test_attention_is_averaged_over_heads_and_rows():
    given = evidence()
    expected = sum(given.attention[:, h, r] for h in range(4) for r in range(3)) / 12
    assert torch.allclose(SCORERS["text-raters"].score(given), expected)


def test_a_token_unlike_the_others_scores_highest():
    states = torch.ones(1, 6, 4)
    states[0, 3] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert SCORERS["dissimilarity"].score(Evidence(states)).argmax().item() == 3


def test_random_follows_its_seed():
    states = torch.zeros(1, 50, 4)
    draws = [SCORERS["random"].score(Evidence(states, seed=seed)) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_raters_are_the_text_tokens_above_the_mean_share():
    visual = torch.eye(3)[None]
    text = torch.tensor([[[9.0, 0, 0], [0, 0, 0], [0, 9, 0], [0, 0, 0.1]]])
    assert text_raters(visual, text).tolist() == [[True, False, True, False]]


def test_missing_evidence_is_named():
    with pytest.raises(ConfigError, match="needs attention"):
        SCORERS["last-query"].score(Evidence(torch.zeros(1, 4, 2)))
