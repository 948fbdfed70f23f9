"""Theta: the search space Θ = {g, c, γ, τ, θ, ρ, ν} of every layer (Eqs. 9-10).

Unconstrained weights, mapped to valid ranges by the paper's functions, so that plain gradient
descent stays inside. Any entry can instead be *fixed* at an exact value, limits included: that is
how prior methods, fixed layers or a fixed operator are points and slices of the same space.
"""

from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from eos.config import Artifact, ExtendedFloat, ProblemsError
from eos.errors import ConfigError
from eos.operator.operate import Omega
from eos.operator.regime import regime
from eos.space.activations import GROUPS, Group, activate, weight_of
from eos.space.cost import K_MIN, expected_schedule, retain_schedule
from eos.space.deployment import Deployment
from eos.space.starts import BORDER, OPERATOR_STARTS, Init, default_layers, shared_budget


class Theta(nn.Module):
    """The searched variables of S sites: ``num_layers`` decoder layers, and optionally the input.

    Attributes:
        sites: the layers that may reduce, in order; -1 is the input, before the decoder.
        gate_temperature: T_g, and
        budget_temperature: T_c of Eq. 10; raising them sharpens g and c.
        deployment: scorers, number of layers and sizes of the plans it becomes.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        visual_tokens: int,
        k_min: int = K_MIN,
        input_site: bool = False,
        deployment: Deployment | None = None,
    ) -> None:
        super().__init__()
        self.deployment = deployment or Deployment()
        self.num_layers, self.visual_tokens, self.k_min = num_layers, visual_tokens, k_min
        self.sites = range(-1 if input_site else 0, num_layers)
        self.gate_temperature = self.budget_temperature = 1.0
        sites = len(self.sites)
        self.weights = nn.ParameterDict(
            {group: nn.Parameter(torch.zeros(sites)) for group in GROUPS}
        )
        for group in GROUPS:  # NaN where an entry is free, its exact value where it is fixed
            self.register_buffer(f"fixed_{group}", torch.full((sites,), torch.nan))

    @classmethod
    def start(
        cls,
        num_layers: int,
        *,
        visual_tokens: int,
        budget: int,
        init: Init = "uniform",
        layers: list[int] | None = None,
        k_min: int = K_MIN,
        input_site: bool = False,
        deployment: Deployment | None = None,
    ) -> Self:
        """Begin a search: ``layers`` open, the others all but closed, N_final at the budget.

        ``uniform`` starts every operator midway (the paper's table), ``prune`` near γ = 0 (its
        prose), ``merge`` near hard merging. One shared c lets the N̄ recursion end at ``budget``.
        """
        if init not in OPERATOR_STARTS:
            raise ConfigError(f"expected init in {sorted(OPERATOR_STARTS)}, found {init!r}")
        if not k_min <= budget < visual_tokens:
            raise ConfigError(
                f"expected a budget from {k_min} to {visual_tokens - 1}, found {budget}"
            )
        theta = cls(
            num_layers,
            visual_tokens=visual_tokens,
            k_min=k_min,
            input_site=input_site,
            deployment=deployment,
        )
        opened = default_layers(num_layers) if layers is None else layers
        theta.set("g", BORDER)
        theta.set("g", 1.0 - BORDER, layers=opened)
        theta.set("c", shared_budget(theta.g.detach().double(), budget / visual_tokens))
        for group, value in OPERATOR_STARTS[init].items():
            theta.set(group, value)
        return theta

    def value(self, group: Group) -> Tensor:
        """Map one group's weights to its range (Eq. 10), ``[S]``; fixed entries are as fixed."""
        weight = self.weights[group]
        fixed = self._fixed(group)
        value = activate(group, weight, temperature=self._temperature(group))
        return torch.where(fixed.isnan(), value, fixed)

    @property
    def g(self) -> Tensor:
        """Layer activation, ``[S]``."""
        return self.value("g")

    @property
    def c(self) -> Tensor:
        """Fraction of tokens that an active layer discards, ``[S]``."""
        return self.value("c")

    @property
    def compression(self) -> Tensor:
        """The fraction g·c that each layer discards, ``[S]``."""
        return self.g * self.c

    @property
    def active_layers(self) -> Tensor:
        """Σ g, the relaxed number of layers that reduce, differentiable."""
        return self.g.sum()

    def omega(self, layer: int) -> Omega:
        """The operator tuple Ω of one layer; entries that are fixed are exact floats."""
        row = layer - self.sites[0]
        return Omega(*(self.entries(group)[row] for group in GROUPS[2:]))

    def entries(self, group: Group) -> list[float | Tensor]:
        """One group's values site by site: an exact float where fixed, else a tensor."""
        fixed = self._fixed(group).tolist()
        free = self.value(group).unbind()
        return [
            value if exact != exact else exact for exact, value in zip(fixed, free, strict=True)
        ]

    def expected_schedule(self) -> Tensor:
        """N̄_0 … N̄_L, differentiable: what enters each layer, and N_final."""
        return expected_schedule(self.visual_tokens, self.compression)[-self.num_layers - 1 :]

    def retain_schedule(self) -> list[int]:
        """N_0 … N_L as the forward pass counts them (Eq. 11)."""
        keep_fracs = (1.0 - self.compression.detach().double()).tolist()
        schedule = retain_schedule(self.visual_tokens, keep_fracs, self.k_min)
        return schedule[-self.num_layers - 1 :]

    @torch.no_grad()
    def set(self, group: Group, value: float | Tensor, *, layers: list[int] | None = None) -> Self:
        """Move entries to a value inside their range; they stay free to move on."""
        target = torch.as_tensor(value, dtype=torch.float64)
        weight = weight_of(group, target, temperature=self._temperature(group))
        if not bool(weight.isfinite().all()):
            raise ConfigError(
                f"expected {group} strictly inside its range, found {value}; limits need fix()"
            )
        self.weights[group][self._rows(layers)] = weight.to(self.weights[group])
        return self

    @torch.no_grad()
    def fix(self, group: Group, value: float | Tensor, *, layers: list[int] | None = None) -> Self:
        """Hold entries at an exact value, limits such as γ = 0, τ = inf or θ = -inf included."""
        fixed = self._fixed(group)
        fixed[self._rows(layers)] = torch.as_tensor(value, dtype=torch.float32).to(fixed)
        return self

    @torch.no_grad()
    def freeze(self, *groups: Group, layers: list[int] | None = None) -> Self:
        """Hold entries at the value they have now."""
        rows = self._rows(layers)
        for group in groups:
            self.fix(group, self.value(group)[rows], layers=layers)
        return self

    def release(self, *groups: Group, layers: list[int] | None = None) -> Self:
        """Let fixed entries move again, from where their weights were."""
        for group in groups:
            self._fixed(group)[self._rows(layers)] = torch.nan
        return self

    def save(self, path: str | Path) -> None:
        """Write ``theta.json``."""
        ThetaFile.of(self).save(path)

    @classmethod
    def load(cls, path: str | Path) -> "Theta":
        """Read ``theta.json``, exactly as it was saved."""
        return ThetaFile.load(path).theta()

    def __repr__(self) -> str:
        schedule = self.retain_schedule()
        header = (
            f"Theta({self.num_layers} layers, {self.visual_tokens} tokens, N_final={schedule[-1]}, "
            f"Σg={self.active_layers.item():.2f}, T_g={self.gate_temperature:g}, "
            f"T_c={self.budget_temperature:g})"
        )
        columns = "layer  tokens      g      c  gamma    tau  theta    rho     nu  regime"
        values = torch.stack([self.value(group).detach() for group in GROUPS], dim=-1).tolist()
        rows = [
            f"{layer:5d}  {schedule[layer + 1]:6d}"
            + "".join(f" {number:6.3g}" for number in row)
            + f"  {regime(*row[2:])}"
            for layer, row in zip(self.sites, values, strict=True)
        ]
        return "\n".join([header, columns, *rows])

    def _temperature(self, group: Group) -> float:
        return {"g": self.gate_temperature, "c": self.budget_temperature}.get(group, 1.0)

    def _fixed(self, group: Group) -> Tensor:
        return self.get_buffer(f"fixed_{group}")

    def _rows(self, layers: list[int] | None) -> Tensor:
        chosen = list(self.sites) if layers is None else layers
        outside = [layer for layer in chosen if layer not in self.sites]
        if outside:
            first, last = self.sites[0], self.sites[-1]
            raise ConfigError(f"expected layers from {first} to {last}, found {outside}")
        return torch.tensor([layer - self.sites[0] for layer in chosen], dtype=torch.long)


class ThetaFile(Artifact):
    """``theta.json``: the weights as they are, and the fixed entries (null where free)."""

    schema_: Literal["eos.theta/1"] = Field(default="eos.theta/1", alias="schema")
    num_layers: PositiveInt
    visual_tokens: PositiveInt
    k_min: PositiveInt
    input_site: bool = False
    gate_temperature: float
    budget_temperature: float
    deployment: Deployment = Deployment()
    weights: dict[Group, list[float]]
    fixed: dict[Group, list[ExtendedFloat | None]]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        lengths = {f"weights.{group}": len(self.weights.get(group, ())) for group in GROUPS}
        lengths |= {f"fixed.{group}": len(self.fixed.get(group, ())) for group in GROUPS}
        sites = self.num_layers + self.input_site
        problems = [
            f"{name}: expected {sites} numbers, found {length}"
            for name, length in lengths.items()
            if length != sites
        ]
        if problems:
            raise ProblemsError(problems)
        return self

    @classmethod
    def of(cls, theta: Theta) -> Self:
        """Describe Θ exactly: every float32 is also a JSON number."""
        fixed = {group: theta.get_buffer(f"fixed_{group}").tolist() for group in GROUPS}
        return cls(
            num_layers=theta.num_layers,
            visual_tokens=theta.visual_tokens,
            k_min=theta.k_min,
            input_site=theta.sites[0] < 0,
            gate_temperature=theta.gate_temperature,
            budget_temperature=theta.budget_temperature,
            deployment=theta.deployment,
            weights={group: theta.weights[group].tolist() for group in GROUPS},
            fixed={group: [None if x != x else x for x in row] for group, row in fixed.items()},
        )

    @torch.no_grad()
    def theta(self) -> Theta:
        """Make the Θ that this file describes."""
        theta = Theta(
            self.num_layers,
            visual_tokens=self.visual_tokens,
            k_min=self.k_min,
            input_site=self.input_site,
            deployment=self.deployment,
        )
        theta.gate_temperature = self.gate_temperature
        theta.budget_temperature = self.budget_temperature
        for group in GROUPS:
            theta.weights[group].copy_(torch.tensor(self.weights[group]))
            row = [torch.nan if x is None else x for x in self.fixed[group]]
            theta.fix(group, torch.tensor(row))
        return theta
