"""Pruning by the norm of hidden states keeps the longest, whatever their direction."""

import torch

from eos import Plan
from eos.methods.registry import SCORERS
from eos.operator.scorers import Evidence


def test_the_longest_states_score_highest():
    unit = torch.nn.functional.normalize(torch.randn(1, 5, 8), dim=-1)
    lengths = torch.tensor([3.0, 1.0, 5.0, 2.0, 4.0])
    score = SCORERS["state-norm"].score
    assert torch.allclose(score(Evidence(unit * lengths[:, None])), lengths)
    assert torch.allclose(score(Evidence(-unit * lengths[:, None])), lengths)
    assert not torch.allclose(score(Evidence(unit)), lengths)


def test_its_preset_prunes_once_after_layer_1():
    (step,) = Plan.preset("state-norm", budget=64).steps
    assert (step.layer, step.keep, step.operator.label) == (1, 64, "prune")
