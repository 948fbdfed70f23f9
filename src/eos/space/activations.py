"""Activations: the functions that map Θ's unconstrained weights to valid ranges (Eq. 10)."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import softplus

Group: TypeAlias = Literal["g", "c", "gamma", "tau", "theta", "rho", "nu"]

GROUPS: tuple[Group, ...] = ("g", "c", "gamma", "tau", "theta", "rho", "nu")
EPS = 1e-6  # of τ = softplus(w) + ε


def activate(group: Group, weight: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Map weights of one group to its range.

    >>> activate("gamma", torch.zeros(1)), activate("theta", torch.zeros(1))
    (tensor([0.5000]), tensor([0.]))
    """
    if group == "tau":
        return softplus(weight) + EPS
    if group == "theta":
        return 2.0 * torch.sigmoid(weight) - 1.0
    return torch.sigmoid(weight * temperature)


def weight_of(group: Group, value: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Find the weights whose activation is ``value``: the inverse of `activate`."""
    if group == "tau":
        return (value - EPS).expm1().log()
    if group == "theta":
        value = (value + 1.0) / 2.0
    return torch.logit(value) / temperature
