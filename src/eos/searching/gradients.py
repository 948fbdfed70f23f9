"""Gradients: one step's losses and their derivatives, the same on one process as on several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from eos.data.batches import Batch, Reader
from eos.engine.relaxation import RelaxedTheta
from eos.engine.search_pass import PassOutput, search_pass
from eos.models.backbone import Backbone
from eos.models.processor import place_batch
from eos.runs.processes import Processes
from eos.searching.objective import Losses, Objective, losses_of
from eos.searching.schedule import AtBudget
from eos.searching.settings import SearchConfig
from eos.space.activations import GROUPS
from eos.space.theta import Theta

TERMS = tuple(field.name for field in fields(Losses))


@dataclass(frozen=True)
class StepGradients:
    """What all processes together found in a step.

    Attributes:
        terms: of the objective, by name, without weights.
        tried: samples that were looked at, and
        skipped: how many of them could not be used.
        stop: whether any process received a signal to stop.
        finite: whether the losses and all derivatives are numbers.
        norms: of each weighted term's own gradient, by name; empty if they were not measured.
    """

    terms: dict[str, float]
    tried: int
    skipped: int
    stop: bool
    finite: bool
    norms: dict[str, float]


def find_gradients(
    backbone: Backbone,
    theta: Theta,
    *,
    config: SearchConfig,
    budget: int,
    reader: Reader,
    batch: Batch,
    processes: Processes,
    stop: bool = False,
    apart: bool = False,
) -> StepGradients:
    """Leave the gradient of the global batch in Θ's weights (Eqs. 13-14).

    Losses are means over samples, so a part of n samples counts n of the batch; constraints, which
    every part has, add up to once. ``apart`` differentiates the terms one by one, so that their
    gradients can be compared; it takes one more backward pass.
    """
    parameters = [theta.weights[group] for group in GROUPS]
    weights = config.objective.weights if apart else {"total": 1.0}
    grads = {name: torch.zeros(sum(p.numel() for p in parameters)).double() for name in weights}
    seen = AtBudget(theta, budget) if config.budgets else theta
    search = RelaxedTheta(seen, config.relaxation)
    terms = torch.zeros(len(TERMS), dtype=torch.float64)
    for piece in batch.pieces():
        inputs, labels = place_batch(backbone.model, reader.inputs(piece))
        losses = search_losses(
            backbone,
            search,
            inputs=inputs,
            labels=labels,
            objective=config.objective,
            budget=budget,
            recompute=config.recompute,
        )
        share = len(piece) / config.batch
        for name, weight in weights.items():
            term = share * weight * vars(losses)[name]
            grads[name] += _gradient(term, parameters, last=name == list(weights)[-1])
        terms += share * torch.tensor(list(losses.as_floats().values()), dtype=torch.float64)
    counts = torch.tensor([batch.tried, len(batch.skipped), stop], dtype=torch.float64)
    total = processes.total(torch.cat([*grads.values(), terms, counts]))
    sites, size = len(theta.sites), len(next(iter(grads.values())))
    found = dict(zip(grads, total[: len(grads) * size].view(len(grads), size), strict=True))
    joint = sum(found.values(), torch.zeros(size).double())
    for row, parameter in enumerate(parameters):
        parameter.grad = joint[row * sites : (row + 1) * sites].to(parameter)
    numbers = total[len(grads) * size :].tolist()
    tried, skipped, stopping = (int(x) for x in numbers[len(TERMS) :])
    return StepGradients(
        terms=dict(zip(TERMS, numbers, strict=False)),
        tried=tried,
        skipped=skipped,
        stop=stopping > 0,
        finite=bool(total.isfinite().all()),
        norms={name: float(own.norm()) for name, own in found.items()} if apart else {},
    )


def search_losses(
    backbone: Backbone,
    search: RelaxedTheta,
    *,
    inputs: Mapping[str, Any],
    labels: Tensor,
    objective: Objective,
    budget: int,
    recompute: bool = False,
) -> Losses:
    """Run Θ on one batch and evaluate the objective (Eq. 13).

    No reference pass is run if λ_a is 0, and neither logits nor late layers if the cross-entropy is
    off.
    """
    output = PassOutput()
    if objective.ce_weight or objective.align_weight:
        output = search_pass(
            backbone,
            search,
            inputs=inputs,
            labels=labels,
            predict=objective.ce_weight > 0,
            align_on=objective.align_on if objective.align_weight else None,
            layers=objective.align_layers,
            recompute=recompute,
        )
    dims = backbone.dims
    return losses_of(output, search.theta, objective=objective, budget=budget, dims=dims)


def _gradient(term: Tensor, parameters: Sequence[Tensor], *, last: bool) -> Tensor:
    """Derivative of one term in all weights, flat; zero where a term does not depend on them."""
    if not term.requires_grad:
        return torch.zeros(sum(p.numel() for p in parameters)).double()
    found = torch.autograd.grad(
        term, parameters, retain_graph=not last, allow_unused=True, materialize_grads=True
    )
    return torch.cat([gradient.double().cpu() for gradient in found])
