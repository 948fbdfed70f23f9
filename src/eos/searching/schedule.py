"""Schedule: learning rate, temperatures, budgets and turns, each a pure function of the step.

Pure functions of the step: nothing here must be saved to resume.
"""

from dataclasses import dataclass
from math import cos, pi
from random import Random

import torch
from torch import Tensor

from eos.searching.settings import SearchConfig
from eos.space.activations import GROUPS, Group
from eos.space.deployment import Deployment
from eos.space.starts import default_layers
from eos.space.theta import Theta


@dataclass(frozen=True)
class Turn:
    """Whose step it is: the place of a start among ``names``, and its own step."""

    start: int
    step: int


def total_turns(config: SearchConfig) -> int:
    """Count the steps of all starts together."""
    return config.steps + (len(config.names) - 1) * config.race_steps


def turn_at(config: SearchConfig, done: int, *, winner: int) -> Turn:
    """Say whose step follows after ``done`` ones: starts in turn, then the winner alone."""
    race = config.race_steps
    if done < race * len(config.names):
        return Turn(*divmod(done, race))
    return Turn(winner, done - race * (len(config.names) - 1) if race else done)


def steps_of(config: SearchConfig, start: int, *, done: int, winner: int) -> int:
    """Count one start's own steps among ``done`` of all."""
    race = config.race_steps
    raced = min(max(done - start * race, 0), race)
    return raced + (max(done - race * len(config.names), 0) if start == winner else 0)


def learning_rate(config: SearchConfig, step: int) -> float:
    """Rise linearly over the warm-up, then fall to zero along a cosine."""
    warm = round(config.warmup * config.steps)
    if step < warm:
        return config.lr * (step + 1) / warm
    progress = (step - warm) / max(1, config.steps - warm)
    return config.lr * 0.5 * (1.0 + cos(pi * progress))


def temperature(ends: tuple[float, float], config: SearchConfig, *, step: int) -> float:
    """Go geometrically from a first to a last temperature."""
    first, last = ends
    return float(first * (last / first) ** (step / max(1, config.steps - 1)))


def set_temperatures(theta: Theta, config: SearchConfig, *, step: int) -> None:
    """Set T_g and T_c as a step has them (Eq. 10)."""
    theta.gate_temperature = temperature(config.gate_temperature, config, step=step)
    theta.budget_temperature = temperature(config.budget_temperature, config, step=step)


@torch.no_grad()
def sharpen(theta: Theta, config: SearchConfig, *, step: int) -> None:
    """End a step: take Θ from its temperatures to those of the next, if there is one.

    Gates move apart, which is what T_g is for. Counts stay where they are, or every c above one
    half would grow by itself: a higher T_c only lets the same change of a weight count for more.
    """
    if step + 1 < config.steps:
        before = temperature(config.budget_temperature, config, step=step)
        set_temperatures(theta, config, step=step + 1)
        theta.weights["c"] *= before / theta.budget_temperature


@torch.no_grad()
def lengthen(theta: Theta, before: SearchConfig, config: SearchConfig, *, step: int) -> None:
    """Take Θ after ``step`` steps from one schedule to a longer one, where T_g and T_c are lower.

    Counts stay, as in `sharpen`; gates move together again as far as they had moved apart too soon.
    """
    last = min(step, before.steps - 1)
    known = temperature(before.budget_temperature, before, step=last)
    set_temperatures(theta, config, step=min(step, config.steps - 1))
    theta.weights["c"] *= known / theta.budget_temperature


def drawn_budget(config: SearchConfig, step: int) -> int:
    """Draw the budget of a step."""
    if not config.budgets:
        return config.budget
    return Random(f"eos {config.seed} budget {step}").choice(config.budgets)


def first_theta(
    config: SearchConfig,
    start: int,
    *,
    num_layers: int,
    visual_tokens: int,
    deployment: Deployment | None = None,
) -> Theta:
    """Make Θ as a start begins."""
    opened = default_layers(num_layers) if config.layers is None else list(config.layers)
    theta = Theta.start(
        num_layers,
        visual_tokens=visual_tokens,
        deployment=deployment,
        budget=config.budget,
        init=config.names[start],
        layers=opened,
        k_min=config.k_min,
        input_site=config.reduces_input,
    )
    if config.fix_layers:
        theta.fix("g", 0.0).fix("g", 1.0, layers=opened)
        theta.set("c", 1.0 - (config.budget / visual_tokens) ** (1.0 / len(opened)))
    for group, value in config.fix.items():
        theta.fix(group, value)
    set_temperatures(theta, config, step=0)
    with torch.no_grad():  # the values above are meant at the first step's temperatures
        theta.weights["g"] /= theta.gate_temperature
        theta.weights["c"] /= theta.budget_temperature
    return theta


class AtBudget(Theta):
    """Θ seen at another budget: keep fractions to one power s, Π(1 - g_l c_l)^s = budget / N_0.

    Shares the weights of the Θ it is made of, and gradients reach them through s, too: whatever
    budget a step draws teaches the same gates, operators and shares of the reduction.
    """

    def __init__(self, theta: Theta, budget: int) -> None:
        super().__init__(
            theta.num_layers,
            visual_tokens=theta.visual_tokens,
            k_min=theta.k_min,
            input_site=theta.sites[0] < 0,
            deployment=theta.deployment,
        )
        self.gate_temperature = theta.gate_temperature
        self.budget_temperature = theta.budget_temperature
        self.weights, self.budget = theta.weights, budget
        for group in GROUPS:
            self.get_buffer(f"fixed_{group}").copy_(theta.get_buffer(f"fixed_{group}"))

    def value(self, group: Group) -> Tensor:
        """Map one group's weights to its range; c as the budget requires."""
        if group != "c":
            return super().value(group)
        gates = super().value("g")
        logs = torch.log1p(-(gates * super().value("c")).clamp(max=1.0 - 1e-6))
        target = torch.log(torch.tensor(self.budget / self.visual_tokens))
        exponent = target / logs.sum().clamp(max=-1e-6)
        # a gate that is shut stays so, whatever c would have to be
        return -torch.expm1(exponent * logs) / gates.clamp_min(1e-6)

    def entries(self, group: Group) -> list[float | Tensor]:
        """One group's values site by site; no c is fixed at another budget."""
        return list(self.value("c").unbind()) if group == "c" else super().entries(group)
