"""Starts: where a search of Θ begins (Sec. 2.6, Table 5)."""

from typing import Literal, TypeAlias

from torch import Tensor

from eos.space.activations import Group

Init: TypeAlias = Literal["uniform", "prune", "merge"]

BORDER = 0.02  # a value on the border of a sigmoid starts here, where it can still move
DEFAULT_LAYERS = (2, 6, 15)  # of 32: where SparseVLM reduces and the paper starts
OPERATOR_STARTS: dict[Init, dict[Group, float]] = {
    "uniform": {"gamma": 0.5, "tau": 0.5, "theta": 0.0, "rho": BORDER, "nu": BORDER},
    "prune": {"gamma": BORDER, "tau": 0.5, "theta": 0.0, "rho": BORDER, "nu": BORDER},
    "merge": {"gamma": 1 - BORDER, "tau": 0.05, "theta": -0.96, "rho": BORDER, "nu": BORDER},
}


def default_layers(num_layers: int) -> list[int]:
    """Place the paper's layers {2, 6, 15} of 32 in a model of another depth, distinct."""
    return sorted({min(round(layer * num_layers / 32), num_layers - 1) for layer in DEFAULT_LAYERS})


def shared_budget(gates: Tensor, final_frac: float) -> float:
    """Solve Π (1 - g_l c) = final_frac for the one c that all layers start from."""
    low, high = BORDER, 1.0 - BORDER
    for _ in range(60):
        middle = (low + high) / 2
        too_many = (1.0 - gates * middle).prod().item() > final_frac
        low, high = (middle, high) if too_many else (low, middle)
    return (low + high) / 2
