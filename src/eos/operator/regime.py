"""Name the operating regime of a point Ω = (γ, τ, θ, ρ, ν) (Sec. 2.7, Definitions 2.2-2.5).

Every table and figure names regimes through this one function. A corner is a *set* of points:

=========  =====================================
prune      γ = 0, ρ = 0           (τ, θ, ν free)
reweight   γ = 0, ρ > 0           (τ, θ, ν free)
merge      γ = 1, τ → 0,  θ → -1, ρ = 0 (ν free)
pool       γ = 1, τ → ∞,  θ → -1, ρ = 0 (ν free)
=========  =====================================

ν is free everywhere: it restores a scale and moves no information.
"""

from math import hypot, inf
from typing import Literal, NamedTuple, TypeAlias

Corner: TypeAlias = Literal["prune", "merge", "pool", "reweight"]

TOLERANCE = 0.05  # Θ starts border values at 0.02: that still counts as the border; 0.08 does not


class Regime(NamedTuple):
    """What a point is called, the corner nearest to it, and how far that corner is."""

    name: Literal["prune", "merge", "pool", "reweight", "hybrid"]
    nearest: Corner
    distance: float

    def __str__(self) -> str:
        return self.name if self.name != "hybrid" else f"hybrid (near {self.nearest})"


def regime(gamma: float, tau: float, theta: float, rho: float, nu: float = 0.0) -> Regime:
    """Say which corner Ω is at, or that it is a hybrid and which corner is nearest.

    Distances are taken in the cube of γ, τ/(1+τ), (θ+1)/2 and ρ, each clipped to [0, 1]: the
    temperature's two limits become its two faces.

    >>> str(regime(gamma=0.083, tau=0.22, theta=0.10, rho=0.0))  # the paper's layer 6
    'hybrid (near prune)'
    >>> str(regime(gamma=1.0, tau=0.0, theta=-inf, rho=0.0))
    'merge'
    """
    softness = 1.0 if tau == inf else tau / (1.0 + tau)
    closed = min(max((theta + 1.0) / 2.0, 0.0), 1.0)
    reweighting = min(rho, 1.0)
    offsets: dict[Corner, tuple[float, ...]] = {
        "prune": (gamma, reweighting),
        "merge": (1.0 - gamma, softness, closed, reweighting),
        "pool": (1.0 - gamma, 1.0 - softness, closed, reweighting),
    }
    if rho > TOLERANCE:
        offsets["reweight"] = (gamma,)
    nearest = min(offsets, key=lambda corner: hypot(*offsets[corner]))
    at_corner = max(offsets[nearest]) <= TOLERANCE
    return Regime(nearest if at_corner else "hybrid", nearest, hypot(*offsets[nearest]))
