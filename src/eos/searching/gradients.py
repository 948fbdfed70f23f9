"""Gradients: one step's losses and their derivatives, the same on one process as on several."""

from dataclasses import dataclass, fields

import torch

from eos.backbones.backbone import Backbone
from eos.backbones.processor import place_batch
from eos.data.batches import Batch, Reader
from eos.losses import Losses, search_losses
from eos.searching.processes import Processes
from eos.searching.schedule import AtBudget
from eos.searching.settings import SearchConfig
from eos.theta import GROUPS, Theta

TERMS = tuple(field.name for field in fields(Losses))


@dataclass(frozen=True)
class Found:
    """What all processes together found in a step.

    Attributes:
        terms: of the objective, by name, without weights.
        tried: samples that were looked at, and
        skipped: how many of them could not be used.
        stop: whether any process was asked to stop.
        finite: whether the losses and all derivatives are numbers.
    """

    terms: dict[str, float]
    tried: int
    skipped: int
    stop: bool
    finite: bool


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
) -> Found:
    """Leave the gradient of the global batch in Θ's weights (Eqs. 13-14).

    Losses are means over samples, so a part of n samples counts n of the batch; constraints, which
    every part has, add up to once.
    """
    parameters = [theta.weights[group] for group in GROUPS]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    seen = AtBudget(theta, budget) if config.budgets else theta
    terms = torch.zeros(len(TERMS), dtype=torch.float64)
    for piece in batch.pieces():
        inputs, labels = place_batch(backbone.model, reader.inputs(piece))
        losses = search_losses(
            backbone,
            seen,
            inputs=inputs,
            labels=labels,
            objective=config.objective.at(budget),
            relaxation=config.relaxation.made(),
            score=config.score,
            input_score=config.input_score,
            checkpoint=config.checkpoint,
        )
        share = len(piece) / config.batch
        (share * losses.total).backward()  # type: ignore[no-untyped-call]
        terms += share * torch.tensor(list(losses.as_floats().values()), dtype=torch.float64)
    counts = torch.tensor([batch.tried, len(batch.skipped), stop], dtype=torch.float64)
    grads = [parameter.grad.double() for parameter in parameters if parameter.grad is not None]
    total = processes.total(torch.cat([*grads, terms, counts]))
    sites = len(theta.sites)
    for row, parameter in enumerate(parameters):
        parameter.grad = total[row * sites : (row + 1) * sites].to(parameter)
    numbers = total[len(parameters) * sites :].tolist()
    tried, skipped, stopping = (int(x) for x in numbers[len(TERMS) :])
    return Found(
        terms=dict(zip(TERMS, numbers, strict=False)),
        tried=tried,
        skipped=skipped,
        stop=stopping > 0,
        finite=bool(total.isfinite().all()),
    )
