"""Objective: the losses of a search, term by term (Eqs. 13-14, App. A.1.2).

Task loss is cross-entropy plus alignment, both averaged over each sample's tokens and then over
samples, so that a batch costs what its samples cost, however they are grouped. The constraints are
one-sided: they vanish once met. A term of weight 0 is not computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator
from torch import Tensor
from torch.nn.functional import cross_entropy

from eos.config import Checked
from eos.engine.reference import Aligned, AlignOn
from eos.engine.search_pass import PassOutput
from eos.methods.registry import PRESETS
from eos.space import cost
from eos.space.cost import TEXT_TOKENS, Dims
from eos.space.plan import Plan
from eos.space.starts import default_layers
from eos.space.theta import Theta
from eos.tokens import IGNORED


class Objective(Checked):
    """What is minimised, but for the budget.

    >>> Objective(max_layers=2).weights["align"]
    0.1

    Attributes:
        max_layers: C, the number of layers that reduce.
        max_flops: F, FLOPs relative to the full model, or a plan that has them, such as
            ``fastv@64``; if None, those of SparseVLM v2 at the same budget, or with ``method:
            paper`` of pruning at the paper's layers.
        align_on: which states alignment compares, ``text``, ``visual`` or ``both``.
        align_layers: after which layers; every fourth if None.
        align_relative: whether a layer's distance is taken over the squared length of the full
            model's states there, so that no layer outweighs the others.
        ce_weight: of the cross-entropy; 0 is the paper's CE-off.
        align_weight: λ_a, of the alignment with the full model.
        budget_weight: λ_b, of the penalty on tokens above the budget.
        layers_weight: λ_c, of the penalty on layers above C.
        flops_weight: of the penalty on FLOPs above F.
        text_tokens: the text length that FLOPs assume; the backbone's default if None.
    """

    max_layers: PositiveFloat = 3
    max_flops: float | str | None = None
    align_on: AlignOn = "text"
    align_layers: tuple[int, ...] | None = None
    align_relative: bool = False
    ce_weight: NonNegativeFloat = 1.0
    align_weight: NonNegativeFloat = 0.1
    budget_weight: NonNegativeFloat = 1.0
    layers_weight: NonNegativeFloat = 1.0
    flops_weight: NonNegativeFloat = 1.0
    text_tokens: NonNegativeInt | None = None

    @field_validator("max_flops")
    @classmethod
    def _positive_or_preset(cls, value: float | str | None) -> float | str | None:
        name, _, budget = value.partition("@") if isinstance(value, str) else ("", "", "")
        preset = name in PRESETS and budget.isdecimal()
        if value is None or preset or (not isinstance(value, str) and 0 < value < inf):
            return value
        raise ValueError("expected a number above 0, or a preset as in fastv@64")

    def flops_limit(
        self, visual_tokens: int, num_layers: int, dims: Dims, *, default: str | None = None
    ) -> float | None:
        """Say what ``max_flops``, else the preset ``default``, is on a model of these sizes."""
        limit = default if self.max_flops is None else self.max_flops
        if not isinstance(limit, str):
            return limit
        name, _, budget = limit.partition("@")
        plan = Plan.preset(
            name,
            budget=int(budget),
            visual_tokens=visual_tokens,
            num_layers=num_layers,
            dims=dims,
            text_tokens=self.text_length,
        )
        return plan.expected.flops_ratio

    @property
    def text_length(self) -> int:
        """The text length that FLOPs assume."""
        return TEXT_TOKENS if self.text_tokens is None else self.text_tokens

    @property
    def weights(self) -> dict[str, float]:
        """The weight of every term, by the term's name."""
        return {
            "cross_entropy": self.ce_weight,
            "align": self.align_weight,
            "budget": self.budget_weight,
            "layers": self.layers_weight,
            "flops": self.flops_weight,
        }


@dataclass(frozen=True)
class Losses:
    """Every term by itself, without its weight, and the weighted total; scalars.

    Terms whose weight is 0 are 0.
    """

    total: Tensor
    cross_entropy: Tensor
    align: Tensor
    budget: Tensor
    layers: Tensor
    flops: Tensor

    def as_floats(self) -> dict[str, float]:
        """Name the terms for a log."""
        return {field.name: float(vars(self)[field.name].detach()) for field in fields(self)}


def losses_of(
    output: PassOutput, theta: Theta, *, objective: Objective, budget: int, dims: Dims
) -> Losses:
    """Evaluate the objective of Θ on what a pass returned, differentiable in all of Θ (Eq. 13)."""
    zero, weights = theta.weights["g"].new_zeros(()), objective.weights
    predicts, aligned = output.logits is not None, zero
    if output.pairs:
        relative = objective.align_relative
        aligned = alignment(output.pairs, layers=output.compared, relative=relative)
    terms = {
        "cross_entropy": sample_cross_entropy(output).mean() if predicts else zero,
        "align": aligned,
        "budget": over(theta.expected_schedule()[-1] / budget - 1.0),
        "layers": over(theta.active_layers - objective.max_layers),
        "flops": flops_excess(theta, objective, budget=budget, dims=dims),
    }
    terms = {name: term if weights[name] else zero for name, term in terms.items()}
    total = sum((weights[name] * term.to(zero) for name, term in terms.items()), zero)
    return Losses(total=total, **terms)


def sample_cross_entropy(output: PassOutput) -> Tensor:
    """Cross-entropy of each sample's answer, a mean over its tokens, ``[B]``."""
    assert output.logits is not None
    assert output.targets is not None
    targets = output.targets
    each = cross_entropy(
        output.logits.flatten(0, 1).float(),
        targets.flatten(),
        ignore_index=IGNORED,
        reduction="none",
    )
    return masked_means(each.view(targets.shape), targets != IGNORED)


def alignment(pairs: Sequence[Aligned], *, layers: int, relative: bool = False) -> Tensor:
    """Squared distance of reduced states from full ones, mean over tokens and ``layers`` (Eq. 14).

    Layers before the two passes differ have no pair and distance 0. ``relative``: over the mean
    squared length of the full states.
    """
    device = pairs[-1].reduced.device
    distances = []
    for pair in pairs:
        full = pair.full.float()
        squares = (pair.reduced.float() - full).square().sum(-1)
        distance = masked_means(squares, pair.counted).mean()
        if relative:
            distance = distance / masked_means(full.square().sum(-1), pair.counted).mean()
        distances.append(distance.to(device))
    return torch.stack(distances).sum() / layers


def flops_excess(theta: Theta, objective: Objective, *, budget: int, dims: Dims) -> Tensor:
    """Penalise FLOPs above F, relative to it and squared, as Eq. 13 does for tokens."""
    limit = objective.flops_limit(theta.visual_tokens, theta.num_layers, dims)
    if limit is None:
        limit = default_flops(theta, budget, dims=dims, text_tokens=objective.text_length)
    ratio: Tensor = cost.flops_ratio(
        theta.expected_schedule(),
        dims,
        tokens=theta.visual_tokens,
        text_tokens=objective.text_length,
    )
    return over(ratio / limit - 1.0)


def default_flops(theta: Theta, budget: int, *, dims: Dims, text_tokens: int) -> float:
    """FLOPs, relative to the full model, of pruning to ``budget`` at the paper's layers."""
    layers = default_layers(theta.num_layers)
    counts = cost.rescale([1.0] * len(layers), tokens=theta.visual_tokens, budget=budget)
    keep_after = dict(zip(layers, counts, strict=True))
    schedule = cost.stepwise_schedule(theta.visual_tokens, keep_after, theta.num_layers)
    ratio = cost.flops_ratio(schedule, dims, tokens=theta.visual_tokens, text_tokens=text_tokens)
    return float(ratio)


def over(excess: Tensor) -> Tensor:
    """Square what is above 0: [x]₊² of Eq. 13."""
    return excess.clamp_min(0.0).square()


def masked_means(values: Tensor, counted: Tensor) -> Tensor:
    """Average ``[B, R]`` over what counts in each sample, ``[B]``."""
    counted = counted.to(values.dtype)
    return (values * counted).sum(dim=1) / counted.sum(dim=1).clamp_min(1)
