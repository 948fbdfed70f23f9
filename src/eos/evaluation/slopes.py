"""Slopes: derivatives of the loss in the compression of one layer, measured and by surrogates.

One reducer after one layer prunes to a fraction of the tokens, and nothing else is reduced. The
central difference of the deployed loss, in steps of whole tokens, stands beside the derivatives
that surrogates give, and beside a difference in wider steps. Everything before the layer is the
same in all of these passes and runs once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from torch import Tensor

from eos.config import Frozen
from eos.data.batches import Answered, Reader
from eos.engine.relaxation import Relaxation, RelaxedTheta
from eos.errors import ConfigError
from eos.models.backbone import Backbone
from eos.models.memory import remembering
from eos.models.processor import place_batch
from eos.searching.gradients import search_losses
from eos.searching.measure import answer_losses
from eos.searching.objective import Objective
from eos.space.deployment import Deployment
from eos.space.plan import Plan
from eos.space.step import Step, needs
from eos.space.theta import Theta

STEP = 0.1  # of the kept tokens, to either side


@dataclass(frozen=True)
class Measured:
    """A slope measured directly: a central difference of the deployed loss.

    Attributes:
        step: to either side, as a fraction of the kept tokens.
    """

    step: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.step < 1:
            raise ConfigError(f"expected a step between 0 and 1, found {self.step}")


SlopeMethod: TypeAlias = Relaxation | Measured


def passes_of(method: SlopeMethod) -> int:
    """Count the forward passes of a method at one site, a backward pass being two."""
    return 2 if isinstance(method, Measured) else 3


class Slopes(Frozen):
    """The slopes on a few samples.

    Attributes:
        samples: how many.
        difference: of the deployed loss, by fraction, layer and sample.
        gradient: mean of the surrogate's over the samples, by method, fraction and layer.
    """

    samples: int
    difference: list[list[list[float]]]
    gradient: dict[str, list[list[float]]]

    @property
    def changes(self) -> list[list[float]]:
        """Mean of the difference over the samples, by fraction and layer."""
        return [[fmean(own) for own in level] for level in self.difference]


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        backbone: the model.
        visual_tokens: of every sample.
        fractions: of them that are kept.
        methods: the surrogates by name.
        score: the scorer.
    """

    backbone: Backbone
    visual_tokens: int
    fractions: Sequence[float]
    methods: Mapping[str, SlopeMethod]
    score: str

    @property
    def layers(self) -> list[int]:
        """All but the last, after which nothing attends to anything."""
        return list(range(self.backbone.num_layers - 1))

    def keep(self, fraction: float) -> int:
        """Count the tokens that are kept."""
        return max(2, round(fraction * self.visual_tokens))

    def step(self, fraction: float) -> int:
        """Count the tokens of a step to either side."""
        return step_of(STEP, self.keep(fraction))


def step_of(step: float, keep: int) -> int:
    """Count the tokens of a step that is a fraction of those kept; at least one."""
    return max(1, round(step * keep))


def measure_slopes(comparison: Comparison, reader: Reader, piece: tuple[Answered, ...]) -> Slopes:
    """Measure every layer at every fraction on samples that go through the model at once."""
    batch = place_batch(comparison.backbone.model, reader.inputs(piece))
    difference: list[list[list[float]]] = [[] for _ in comparison.fractions]
    gradient: dict[str, list[list[float]]]
    gradient = {method: [[] for _ in comparison.fractions] for method in comparison.methods}
    reads_tower = "vision" in needs(comparison.score, "unified")
    with remembering(comparison.backbone, batch[0], tower=not reads_tower) as memory:
        for layer in comparison.layers:
            memory.until = layer
            for level, fraction in enumerate(comparison.fractions):
                place = _Place(comparison, layer, comparison.keep(fraction))
                change = place.difference(*batch, step=comparison.step(fraction))
                difference[level].append(change)
                for name, method in comparison.methods.items():
                    gradient[name][level].append(place.slope(*batch, method=method))
    return Slopes(samples=len(piece), difference=difference, gradient=gradient)


@dataclass(frozen=True)
class _Place:
    """One layer and what is kept after it."""

    comparison: Comparison
    layer: int
    keep: int

    def plan(self, keep: int) -> Plan:
        """Prune to ``keep`` tokens after this layer, and nowhere else."""
        return Plan(
            visual_tokens=self.comparison.visual_tokens,
            num_layers=self.comparison.backbone.num_layers,
            steps=(Step(layer=self.layer, keep=keep, score=self.comparison.score),),
        )

    def theta(self) -> Theta:
        """Write the same as Θ with one free entry, c of this layer."""
        tokens = self.comparison.visual_tokens
        theta = Theta(
            self.comparison.backbone.num_layers,
            visual_tokens=tokens,
            deployment=Deployment(score=self.comparison.score),
        )
        theta.fix("g", 0.0).fix("g", 1.0, layers=[self.layer])
        theta.fix("gamma", 0.0).fix("rho", 0.0).fix("nu", 0.0).fix("tau", 1.0).fix("theta", 0.0)
        return theta.set("c", 1.0 - self.keep / tokens)

    def difference(self, inputs: Mapping[str, Any], labels: Tensor, *, step: int) -> list[float]:
        """Central difference of the deployed loss in the compression, sample by sample."""
        tokens = self.comparison.visual_tokens
        fewest, most = max(1, self.keep - step), min(tokens, self.keep + step)
        more, less = (
            answer_losses(self.comparison.backbone, self.plan(keep), inputs=inputs, labels=labels)
            for keep in (fewest, most)
        )
        width = (most - fewest) / tokens
        return [round((a - b) / width, 6) for a, b in zip(more, less, strict=True)]

    def slope(self, inputs: Mapping[str, Any], labels: Tensor, *, method: SlopeMethod) -> float:
        """The slope by a method, mean over samples."""
        if isinstance(method, Measured):
            step = step_of(method.step, self.keep)
            return round(fmean(self.difference(inputs, labels, step=step)), 6)
        return self.gradient(inputs, labels, relaxation=method)

    def gradient(
        self, inputs: Mapping[str, Any], labels: Tensor, *, relaxation: Relaxation
    ) -> float:
        """Surrogate derivative of the loss in the compression, mean over samples."""
        objective = Objective(align_weight=0, budget_weight=0, layers_weight=0, flops_weight=0)
        theta = self.theta()
        assert theta.retain_schedule()[-1] == self.keep
        losses = search_losses(
            self.comparison.backbone,
            RelaxedTheta(theta, relaxation),
            inputs=inputs,
            labels=labels,
            objective=objective,
            budget=self.keep,
        )
        losses.total.backward()  # type: ignore[no-untyped-call]
        row, gradient = self.layer - theta.sites[0], theta.weights["c"].grad
        assert gradient is not None
        compression = theta.c.detach()[row].double()
        slope = (compression * (1 - compression)).item()  # of c = σ(w)
        return round(float(gradient[row]) / slope, 6)
