"""Objective: the losses of a search, term by term (Eqs. 13-14, App. A.1.2).

Task loss is cross-entropy plus alignment, both averaged over each sample's tokens and then over
samples, so that a batch costs what its samples cost, however they are grouped. The constraints are
one-sided: they vanish once met. A term of weight 0 is not computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from eos.engine.reference import Aligned, AlignOn
from eos.engine.relaxation import Relaxation
from eos.engine.search_pass import Passed, search_pass
from eos.errors import ConfigError, numbered
from eos.models.backbone import Backbone
from eos.space import cost
from eos.space.cost import Dims
from eos.space.plan import TEXT_TOKENS
from eos.space.step import DEFAULT_SCORER, INPUT_SCORER
from eos.space.theta import Theta, default_layers
from eos.tokens import IGNORED


@dataclass(frozen=True)
class Objective:
    """What is minimised.

    Attributes:
        budget: B, the final visual tokens.
        max_layers: C, the number of layers that reduce.
        max_flops: F, FLOPs relative to the full model; by default those of pruning at the paper's
            layers to the same budget.
        align_on: which states alignment compares, ``text``, ``visual`` or ``both``.
        align_layers: after which layers; every fourth if None.
        align_relative: whether a layer's distance is taken over the squared length of the full
            model's states there, so that no layer outweighs the others.
        ce_weight: of the cross-entropy; 0 is the paper's CE-off.
        align_weight: λ_a.
        budget_weight: λ_b.
        layers_weight: λ_c.
        flops_weight: of the FLOPs constraint.
        text_tokens: the text length that FLOPs assume.
    """

    budget: int
    max_layers: float = 3
    max_flops: float | None = None
    align_on: AlignOn = "text"
    align_layers: Sequence[int] | None = None
    align_relative: bool = False
    ce_weight: float = 1.0
    align_weight: float = 0.1
    budget_weight: float = 1.0
    layers_weight: float = 1.0
    flops_weight: float = 1.0
    text_tokens: int = TEXT_TOKENS

    def __post_init__(self) -> None:
        weights = [field.name for field in fields(self) if field.name.endswith("_weight")]
        problems = [
            f"expected {name} of 0 or more, found {vars(self)[name]}"
            for name in weights
            if not vars(self)[name] >= 0
        ]
        if self.budget < 1:
            problems.append(f"expected a budget of 1 token or more, found {self.budget}")
        if self.max_flops is not None and not self.max_flops > 0:
            problems.append(f"expected max_flops above 0, found {self.max_flops}")
        if problems:
            raise ConfigError(numbered(problems))


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


def search_losses(
    backbone: Backbone,
    theta: Theta,
    *,
    inputs: Mapping[str, Any],
    labels: Tensor,
    objective: Objective,
    relaxation: Relaxation | None = None,
    score: str = DEFAULT_SCORER,
    input_score: str = INPUT_SCORER,
    checkpoint: bool = False,
) -> Losses:
    """Evaluate the objective of Θ on one batch, differentiable in all of Θ (Eq. 13).

    The arguments are those of `eos.engine.search_pass.search_pass`; no reference pass is run if
    λ_a is 0, and neither logits nor late layers if the cross-entropy is off.
    """
    passed = Passed()
    if objective.ce_weight or objective.align_weight:
        passed = search_pass(
            backbone,
            theta,
            inputs=inputs,
            labels=labels,
            predict=objective.ce_weight > 0,
            align_on=objective.align_on if objective.align_weight else None,
            layers=objective.align_layers,
            relaxation=relaxation,
            score=score,
            input_score=input_score,
            checkpoint=checkpoint,
        )
    return weighted(passed, theta, objective=objective, dims=backbone.dims)


def weighted(passed: Passed, theta: Theta, *, objective: Objective, dims: Dims) -> Losses:
    """Put the terms together."""
    zero = theta.weights["g"].new_zeros(())
    predicts = passed.logits is not None and passed.targets is not None
    terms = {
        "cross_entropy": answer_loss(passed.logits, passed.targets) if predicts else zero,
        "align": aligned(passed, objective) if passed.pairs else zero,
        "budget": over(theta.expected_schedule()[-1] / objective.budget - 1.0),
        "layers": over(theta.active_layers - objective.max_layers),
        "flops": flops_excess(theta, objective, dims=dims),
    }
    weights = {
        "cross_entropy": objective.ce_weight,
        "align": objective.align_weight,
        "budget": objective.budget_weight,
        "layers": objective.layers_weight,
        "flops": objective.flops_weight,
    }
    terms = {name: term if weights[name] else zero for name, term in terms.items()}
    total = sum((weights[name] * term.to(zero) for name, term in terms.items()), zero)
    return Losses(total=total, **terms)


def answer_loss(logits: Tensor | None, targets: Tensor | None) -> Tensor:
    """Cross-entropy of the answers, ``[B, P, V]`` against ``[B, P]``: a mean over each, then B."""
    assert logits is not None
    assert targets is not None
    return sample_cross_entropy(logits, targets).mean()


def sample_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of each sample's targets ``[B, P]`` under ``[B, P, V]``: ``[B]``."""
    each = cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return _row_mean(each.view(targets.shape), targets != IGNORED)


def aligned(passed: Passed, objective: Objective) -> Tensor:
    """Alignment of a pass as the objective has it."""
    relative = objective.align_relative
    return alignment(passed.pairs, layers=passed.compared, relative=relative)


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
        distance = _row_mean(squares, pair.counted).mean()
        if relative:
            distance = distance / _row_mean(full.square().sum(-1), pair.counted).mean()
        distances.append(distance.to(device))
    return torch.stack(distances).sum() / layers


def flops_excess(theta: Theta, objective: Objective, *, dims: Dims) -> Tensor:
    """Penalise FLOPs above F, relative to it and squared, as Eq. 13 does for tokens."""
    limit = objective.max_flops
    if limit is None:
        limit = default_flops(theta, objective.budget, dims=dims, text_tokens=objective.text_tokens)
    ratio: Tensor = cost.flops_ratio(
        theta.expected_schedule(),
        dims,
        tokens=theta.visual_tokens,
        text_tokens=objective.text_tokens,
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


def _row_mean(values: Tensor, counted: Tensor) -> Tensor:
    """Average ``[B, R]`` over the ``counted`` entries of each row: ``[B]``."""
    counted = counted.to(values.dtype)
    return (values * counted).sum(dim=1) / counted.sum(dim=1).clamp_min(1)
