"""Optimizer: Muon for matrices, in float32, so that training runs on any processor.

torch.optim.Muon orthogonalises in bfloat16, which some processors only emulate and others refuse.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration (Jordan et al., 2024)


def orthogonalised(matrices: Tensor, *, steps: int = 5) -> Tensor:
    """Bring the singular values of ``[n, rows, columns]`` matrices close to one."""
    a, b, c = QUINTIC
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum whose updates are orthogonalised; matrices of one shape go together.

    Updates do not shrink with the gradient: without decay matrices would grow for ever, and what
    layers add would drown the words they started from.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.95,
        decay: float = 0.3,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in shapes.items():
                update = orthogonalised(
                    torch.stack([self._momentum(p, group["momentum"]) for p in parameters])
                )
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, change in zip(parameters, update, strict=True):
                    parameter.mul_(1.0 - group["lr"] * group["decay"])
                    parameter.sub_(change, alpha=scale)

    def _momentum(self, parameter: Tensor, momentum: float) -> Tensor:
        """Keep the running gradient and look one step ahead (Nesterov)."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        kept: Tensor = state["momentum"]
        assert parameter.grad is not None
        kept.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(kept, momentum)
