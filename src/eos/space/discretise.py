"""Discretise: which sites of Θ become steps, how many tokens each keeps, and by which operator."""

import torch

from eos.errors import PlanError
from eos.space import cost
from eos.space.activations import GROUPS
from eos.space.step import Operator
from eos.space.theta import Theta

ACTIVE_GATE = 0.5  # a gate above it is a layer that reduces


def open_layers(theta: Theta, most: int) -> list[int]:
    """List at most ``most`` sites whose gates are open, the most open ones, in order."""
    gates = dict(zip(theta.sites, theta.g.detach().tolist(), strict=True))
    found = [layer for layer, gate in gates.items() if gate > ACTIVE_GATE]
    if not found:
        raise PlanError(
            f"expected a gate above {ACTIVE_GATE}, found {max(gates.values()):.3f} at most: no "
            "layer reduces. Search longer, sharpen T_g, or pass every_layer=True"
        )
    return sorted(sorted(found, key=lambda layer: -gates[layer])[:most])


def reducing_layers(theta: Theta) -> list[int]:
    """List the sites that drop a token, whatever their gates."""
    counts = retained(theta, list(theta.sites))
    before = [theta.visual_tokens, *counts.values()]
    return [
        layer for layer, entering in zip(counts, before, strict=False) if counts[layer] < entering
    ]


def retained(theta: Theta, layers: list[int]) -> dict[int, int]:
    """Count what is left after each site (Eq. 11) if only ``layers`` reduce."""
    keep_fracs = (1.0 - theta.compression.detach().double()).tolist()
    chosen = [
        keep_frac if layer in layers else 1.0
        for layer, keep_frac in zip(theta.sites, keep_fracs, strict=True)
    ]
    schedule = cost.retain_schedule(theta.visual_tokens, chosen, theta.k_min)
    return dict(zip(theta.sites, schedule[1:], strict=True))


@torch.no_grad()
def operators_of(theta: Theta) -> dict[int, Operator]:
    """Read the operator of every site."""
    # Θ is in float32: seven digits are all of it, and 0.9763 is not written 0.9763000011444092
    values = {group: [float(f"{x:.7g}") for x in theta.entries(group)] for group in GROUPS[2:]}
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    masses = theta.deployment.masses
    return {
        layer: Operator.model_validate({**row, "mass": masses.get(layer, 0.0)})
        for layer, row in zip(theta.sites, rows, strict=True)
    }
