"""Relaxation: how Θ runs as a reduction that gradients can pass through (Eqs. 11-12).

`Relaxation` holds the settings, `RelaxedTheta` reads Θ as the plan of its present counts;
`eos.engine.relaxed_steps` executes the steps.
"""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor
from typing_extensions import Self

from eos.config import Checked, ProblemsError
from eos.errors import ConfigError
from eos.operator.operate import Omega
from eos.operator.select import ALPHA, SELECTIONS
from eos.space.activations import GROUPS
from eos.space.plan import Plan
from eos.space.step import Step
from eos.space.theta import Theta


class Relaxation(Checked):
    """How gradients reach the counts.

    >>> Relaxation(boundary="soft").selection
    'rank'

    Attributes:
        selection: whose derivative stands in for the choice's: ``rank``, ``marginal``, ``paper``.
        through: where the weights act, on the ``logits`` of later attention or on the ``states``.
        alpha: sharpness α of the boundary (Eq. 12).
        band: how many tokens to carry along with weight 0; below 1, a fraction of the visual ones.
        boundary: ``hard``, the deployed choice in the forward pass; or ``soft``: while gradients
            are recorded, every token that is likely enough to be kept stays, with its keep
            probability as weight. An operator acts on the hard choice; tokens beyond it stay as
            they are. The sharper α, the nearer the pass is to the deployed one.
    """

    selection: str = "rank"
    through: Literal["logits", "states"] = "logits"
    alpha: PositiveFloat = ALPHA
    band: NonNegativeFloat = 0
    boundary: Literal["hard", "soft"] = "hard"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems, soft = [], self.boundary == "soft"
        if self.selection not in SELECTIONS:
            known = ", ".join(sorted(SELECTIONS))
            problems.append(f"selection: expected one of {known}; found {self.selection!r}")
        if self.band > 1 and self.band != int(self.band):
            problems.append(f"band: expected 0, a fraction or a count, found {self.band}")
        if self.band and self.through == "states":
            problems.append("band: expected 0 with through 'states', since no layer reads a band")
        if soft and self.through == "states":
            problems.append("through: expected 'logits' with a soft boundary, found 'states'")
        if soft and self.selection == "paper":  # its probabilities do not sum to the count
            problems.append("selection: expected 'rank' or 'marginal' with a soft boundary")
        if soft and self.band:
            problems.append(f"band: expected 0 with a soft boundary, found {self.band:g}")
        if problems:
            raise ProblemsError(problems)
        return self

    def band_of(self, tokens: int) -> int:
        """Say how many of ``tokens`` visual tokens are carried along at most."""
        return round(self.band * tokens) if self.band < 1 else int(self.band)


@dataclass(frozen=True)
class Site:
    """The variables of one site in one forward pass.

    Attributes:
        omega: the operator, exact floats where entries are fixed.
        compression: g·c; a float if nothing about it can move.
        mass: share of the dropped tokens' attention weights that passes to the kept ones.
    """

    omega: Omega
    compression: float | Tensor
    mass: float = 0.0


@dataclass(frozen=True)
class RelaxedTheta:
    """Θ as a reduction that can be differentiated.

    Attributes:
        theta: the variables.
        relaxation: how gradients reach the counts.
    """

    theta: Theta
    relaxation: Relaxation = field(default_factory=Relaxation)

    def __post_init__(self) -> None:
        if self.relaxation.boundary == "soft" and self.theta.deployment.masses:
            raise ConfigError(
                "expected steps that pass no attention mass on with a soft boundary, whose weights "
                f"count tokens; found masses {self.theta.deployment.masses}. Use boundary 'hard'"
            )

    def sites(self) -> dict[int, Site]:
        """Read the variables of every site that can reduce, by layer."""
        columns = [self.theta.entries(group) for group in GROUPS]
        sites = {}
        for layer, (g, c, *omega) in zip(self.theta.sites, zip(*columns, strict=True), strict=True):
            shut = any(not isinstance(x, Tensor) and x == 0.0 for x in (g, c))
            if not shut:
                mass = self.theta.deployment.masses.get(layer, 0.0)
                sites[layer] = Site(Omega(*omega), g * c, mass)
        return sites

    def plan(self, sites: dict[int, Site]) -> Plan:
        """Count what every site keeps now (Eq. 11); operators stay with the sites."""
        left = self.theta.retain_schedule()
        steps = [
            Step(layer=layer, keep=left[layer + 1], score=self.theta.deployment.scorer(layer))
            for layer in sites
        ]
        return Plan(
            visual_tokens=self.theta.visual_tokens, num_layers=self.theta.num_layers, steps=steps
        )
