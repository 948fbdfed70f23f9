"""Measure: validation losses of plans, and the gap between Θ's own pass and the plan it becomes."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from eos.config import Frozen
from eos.data.batches import Batch, Reader
from eos.engine.search_pass import labelled_pass
from eos.errors import PlanError
from eos.estimates import Estimate, estimate
from eos.models.backbone import Backbone
from eos.models.processor import place_batch
from eos.searching.objective import sample_cross_entropy
from eos.searching.schedule import AtBudget
from eos.searching.settings import SearchConfig
from eos.space.plan import Plan
from eos.space.theta import Theta


class Gap(Frozen):
    """What becomes of the loss on the way from Θ to a plan, on the same validation samples.

    Attributes:
        budget: final visual tokens.
        samples: how many.
        full: cross-entropy of the full model's answers.
        theta: of Θ's own pass, with its own counts.
        plan: of the plan that is deployed.
        gap: plan minus theta, sample by sample.
    """

    budget: int
    samples: int
    full: Estimate
    theta: Estimate
    plan: Estimate
    gap: Estimate


def sample_losses(
    backbone: Backbone, plans: Mapping[str, Plan], *, reader: Reader, batch: Batch
) -> dict[str, list[float]]:
    """Cross-entropy of each sample's answers under each plan, as deployed."""
    losses: dict[str, list[float]] = {name: [] for name in plans}
    for piece in batch.pieces():
        inputs, labels = place_batch(backbone.model, reader.inputs(piece))
        for name, plan in plans.items():
            losses[name] += answer_losses(backbone, plan, inputs=inputs, labels=labels)
    return losses


@torch.no_grad()
def answer_losses(
    backbone: Backbone, plan: Plan, *, inputs: Mapping[str, Any], labels: Tensor
) -> list[float]:
    """Cross-entropy of each sample's answer under a plan, as deployed."""
    output = labelled_pass(backbone, plan, inputs=inputs, labels=labels)
    losses: list[float] = sample_cross_entropy(output).tolist()
    return losses


def raced_loss(
    theta: Theta, config: SearchConfig, backbone: Backbone, *, reader: Reader, batch: Batch
) -> float:
    """Judge a start by the plans it would become, mean over samples and budgets."""
    try:
        plans = {
            str(budget): Plan.from_theta(theta, budget=budget) for budget in config.all_budgets
        }
    except PlanError:  # no gate is open: nothing to deploy
        return float("inf")
    losses = sample_losses(backbone, plans, reader=reader, batch=batch)
    return fmean(fmean(own) for own in losses.values())


def measure_gaps(
    theta: Theta, config: SearchConfig, backbone: Backbone, *, reader: Reader, batch: Batch
) -> list[Gap]:
    """Compare the full model, Θ's own pass and the plan, for every budget."""
    sizes = {"visual_tokens": theta.visual_tokens, "num_layers": theta.num_layers}
    plans = {"full": Plan(**sizes, steps=())}
    for budget in config.all_budgets:
        seen = theta if not config.budgets else AtBudget(theta, budget)
        plans[f"theta {budget}"] = Plan.from_theta(seen, every_layer=True)
        plans[f"plan {budget}"] = Plan.from_theta(theta, budget=budget)
    losses = sample_losses(backbone, plans, reader=reader, batch=batch)
    return [
        _gap(budget, losses["full"], losses[f"theta {budget}"], losses[f"plan {budget}"])
        for budget in config.all_budgets
    ]


def _gap(budget: int, full: list[float], theta: list[float], plan: list[float]) -> Gap:
    return Gap(
        budget=budget,
        samples=len(full),
        full=estimate(full),
        theta=estimate(theta),
        plan=estimate(plan),
        gap=estimate([after - before for after, before in zip(plan, theta, strict=True)]),
    )
