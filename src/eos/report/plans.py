"""Plans as a report reads them: what each step keeps and does, without torch."""

from functools import cached_property
from math import isinf
from typing import Any, Literal

from pydantic import Field

from eos.config import Artifact, ExtendedFloat, Frozen
from eos.evaluation.study import StudyRow
from eos.operator.regime import Regime, regime
from eos.sizes import Expected

OMEGA = ("gamma", "tau", "theta", "rho", "nu")
GREEK = dict(zip(OMEGA, "γτθρν", strict=True))


class StepView(Frozen):
    """A step of a plan; ``operator`` holds the five numbers, or only the name of its own kind."""

    layer: int
    keep: int
    score: str
    positions: str = "keep"
    operator: dict[str, ExtendedFloat | str]

    @property
    def omega(self) -> dict[str, float] | None:
        """γ, τ, θ, ρ and ν; None of a method's own operator."""
        if self.operator["kind"] != "unified":
            return None
        return {name: float(self.operator[name]) for name in OMEGA}

    @property
    def regime(self) -> Regime | None:
        """Where the operator stands in its space; None of a method's own operator."""
        return None if self.omega is None else regime(**self.omega)

    @property
    def kind(self) -> str:
        """The nearest corner, or ``own``: what figures colour."""
        return self.regime.nearest if self.regime else "own"

    @property
    def hybrid(self) -> bool:
        """Whether the operator is in the interior of its space."""
        return self.regime is not None and self.regime.name == "hybrid"

    @property
    def mass(self) -> float:
        """Share of the dropped tokens' attention weights that passes to the kept ones."""
        return float(self.operator.get("mass", 0.0))

    @property
    def label(self) -> str:
        """What the operator does, in a word."""
        return str(self.regime) if self.regime else str(self.operator["kind"])


class PlanView(Artifact):
    """``plan.json`` or the plan of a study's row."""

    schema_: Literal["eos.plan/1"] = Field(default="eos.plan/1", alias="schema")
    backbone: str = "any"
    visual_tokens: int
    num_layers: int
    dims: dict[str, int] = Field(default_factory=dict)
    text_tokens: int = 0
    steps: tuple[StepView, ...]
    provenance: dict[str, Any] = Field(default_factory=dict)
    expected: Expected

    @cached_property
    def schedule(self) -> list[int]:
        """Visual tokens that enter each layer."""
        after = {step.layer: step.keep for step in self.steps}
        left, found = after.get(-1, self.visual_tokens), []
        for layer in range(self.num_layers):
            found.append(left)
            left = after.get(layer, left)
        return found

    @property
    def layers(self) -> str:
        """The layers that reduce, as a set; the site before the decoder is the input.

        Such as ``{input, 0, 8}``.
        """
        return "{" + ", ".join(site(step.layer) for step in self.steps) + "}"


def steps_of(row: StudyRow) -> tuple[StepView, ...]:
    """Read the steps of a row's plan; none for the full model."""
    return PlanView(**row.plan).steps if row.plan else ()


def site(layer: int) -> str:
    """Name the place of a step: a layer, or the decoder's input."""
    return "input" if layer < 0 else str(layer)


def operator_cells(step: StepView) -> list[str]:
    """Write γ, τ, θ, ρ, ν and the regime as the paper's Table 6: τ and θ only where they act."""
    if step.omega is None or step.regime is None:
        return ["–"] * 5 + [f"own: {step.label}"]
    gamma, tau, theta, rho, nu = step.omega.values()
    name = step.regime.name
    acts = name != "prune" or step.mass > 0
    acting = [_number(tau), _number(theta)] if acts else ["–", "–"]
    label = f"{name} corner" if name != "hybrid" else f"interior {step.label}"
    label += f", mass {step.mass:g}" if step.mass else ""
    return [f"{gamma:.3f}", *acting, f"{rho:.3f}", f"{nu:.3f}", label]


def _number(value: float) -> str:
    return str(value) if isinf(value) else f"{value:.3f}"
