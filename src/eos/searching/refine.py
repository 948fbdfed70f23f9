"""Refine: gradient descent on a plan's operators, the continuous half of the refinement.

Batches are gathered until their mean gradient exceeds its own noise, and the rate is shrunk by what
noise is left.

Where a plan reduces, how many tokens it keeps and which is settled; what becomes of the others, the
Ω of every step, follows the exact gradient of the disagreement with the full model, through the
hard forward pass that is deployed. Whether the result is better is for samples to say that the
descent does not see (`explore.confirm`).
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import torch
from torch import Tensor

from eos.data.batches import Reader
from eos.engine.relaxation import RelaxedTheta
from eos.errors import DataError
from eos.models.memory import remembering
from eos.runs.journal import Journal
from eos.searching.explore import Found, measured, stage
from eos.searching.folder import StartState, State, json_values, load_state, save_state
from eos.searching.judge import Judge, flops_share, plan_name
from eos.searching.plan_to_theta import theta_of
from eos.searching.run import note_skipped
from eos.searching.schedule import learning_rate
from eos.searching.settings import SearchConfig
from eos.searching.space import Space
from eos.space.activations import GROUPS, Group
from eos.space.plan import Plan
from eos.space.starts import BORDER
from eos.space.step import Operator, Step
from eos.space.theta import Theta

Values: TypeAlias = dict[Group, list[float | str]]  # by group and site; infinities are words
DIGITS = 4  # of an operator's values in a plan
RANGES: dict[Group, tuple[float, float]] = {
    "gamma": (BORDER, 1 - BORDER),
    "tau": (0.01, 10.0),
    "theta": (-0.96, 0.96),
    "rho": (BORDER, 1 - BORDER),
    "nu": (BORDER, 1 - BORDER),
}


def refine(
    found: Found,
    *,
    judge: Judge,
    space: Space,
    reader: Reader,
    config: SearchConfig,
    folder: Path,
    unused: Journal,
) -> Found:
    """Descend on the operators of the best plan.

    Args:
        found: the best plan so far.
        judge: of the validation samples on which the result is measured.
        space: of the plan.
        reader: of the samples to learn from.
        config: steps, batch, lr and seed of the descent.
        folder: where it is checkpointed.
        unused: where samples are named that cannot be used.
    """
    plan, processes = found.best.plan, judge.processes
    train = _train_judge(judge, reader, config)
    note_skipped(unused, 0, train.batch.skipped)
    unused.flush()
    theta = free_operators(plan)
    optimizer = torch.optim.AdamW(operator_weights(theta), lr=config.lr, weight_decay=0.0)
    state = State([StartState(theta, optimizer)], {**judge.facts, "plan": plan_name(plan)})
    load_state(folder, state)
    history = Journal(folder / "history.jsonl")
    if processes.main:
        folder.mkdir(parents=True, exist_ok=True)
        history.rewind(state.done)
    saved = state.done
    gradients: list[Tensor] = []  # of the samples since the last update
    while state.done < config.steps:
        step, rate = state.done, learning_rate(config, state.done)
        loss, gradient = batch_gradient(train, theta, step=step, config=config)
        gradients.append(gradient)
        signal = signal_to_noise(gradients)
        # a direction within its noise needs more samples, as many as there are
        moves = signal >= 1.0 or len(gradients) == len(train.pieces)
        noted = {"loss": loss, "gradient_norm": float(gradient.norm()), "lr": rate}
        noted |= {"signal_to_noise": signal, "batches": len(gradients)}
        history.append(step, {"step": step, **noted, "theta": json_values(theta, GROUPS[2:])})
        state.done += 1
        if moves:
            shrunk = rate * signal / (1.0 + signal)  # what a noisy direction is worth
            update(theta, optimizer, torch.stack(gradients).mean(dim=0), rate=shrunk)
            gradients.clear()
        # between updates a checkpoint would have to hold the gradients, too
        if (moves and state.done >= saved + config.save_every) or state.done == config.steps:
            saved = state.done
            if processes.main:
                history.flush()
                save_state(folder, state, theta=theta)
            history.lines.clear()  # the main process writes for all
    judge.passes += descent_passes(plan, config)
    processes.wait()
    trajectory = [entry["theta"] for entry in history.entries()]
    new = space.plan(refined_steps(trajectory, plan))
    assert new is not None
    rival = measured(judge, new, judge.pieces)
    return Found(rival, (*found.stages, stage("gradient", judge, rival, tried=1)))


def free_operators(plan: Plan) -> Theta:
    """Write a plan as Θ whose operators can move: values on a border start a little inside."""
    theta = theta_of(plan)
    for step in plan.steps:
        assert isinstance(step.operator, Operator)
        here = [step.layer]
        for group, value in zip(GROUPS[2:], step.operator.omega, strict=True):
            theta.release(group, layers=here)
            theta.set(group, _inside(group, float(value)), layers=here)
    return theta


def _inside(group: Group, value: float) -> float:
    """Where a value can move from: a little inside its range."""
    low, high = RANGES[group]
    return min(max(value, low), high)


def refined_steps(trajectory: Sequence[Values], plan: Plan) -> list[Step]:
    """Put the operators' mean over the last half of a descent into the plan's steps.

    A batch is noisy and so is where a descent ends; the mean of where it has been is not. What has
    not moved stays exactly what it was, limits such as γ = 0 included.
    """
    late = trajectory[len(trajectory) // 2 :]
    steps = []
    for step in plan.steps:
        row = step.layer - min(0, plan.steps[0].layer)
        values = {
            group: round(fmean(float(found[group][row]) for found in late), DIGITS)
            for group in GROUPS[2:]
        }
        assert isinstance(step.operator, Operator)
        before = step.operator.omega._asdict()
        moved = {x: y for x, y in values.items() if y != round(_inside(x, before[x]), DIGITS)}
        operator = Operator.model_validate(step.operator.model_dump() | moved)
        steps.append(step.model_copy(update={"operator": operator}))
    return steps


def batch_gradient(
    train: Judge, theta: Theta, *, step: int, config: SearchConfig
) -> tuple[float, Tensor]:
    """Loss of one batch, and its gradient in the operators' weights, group after group, ``[V]``.

    Each process has its share of the batch; gradients are summed over all.
    """
    parameters = operator_weights(theta)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    piece = step % len(train.pieces)
    known = train.known(piece)
    with remembering(train.backbone, known.inputs, images=known.images, layers=False):
        values = train.compare(known, RelaxedTheta(theta), recompute=config.recompute)
    loss = values.sum() / config.batch
    loss.backward()  # type: ignore[no-untyped-call]
    grads = [parameter.grad.double() for parameter in parameters if parameter.grad is not None]
    total = train.processes.total(torch.cat([*grads, loss.detach().double().cpu().view(1)]))
    if not bool(total.isfinite().all()):
        raise DataError(
            f"expected finite losses and gradients of the operators, found others at step {step}; "
            "look at the samples, or lower lr"
        )
    return float(total[-1]), total[:-1]


def signal_to_noise(gradients: Sequence[Tensor]) -> float:
    """Estimate how far the mean of batches' gradients exceeds its noise, both squared.

    The mean of n gradients has the squared length of the true one plus the noise, their variance
    over n; the estimate takes the noise off. 0 for a single one, whose noise is not known.
    """
    number, rows = len(gradients), torch.stack(list(gradients))
    if number == 1:
        return 0.0
    noise = float(rows.var(dim=0).sum()) / number
    signal = float(rows.mean(dim=0).square().sum()) - noise
    return max(0.0, signal / noise) if noise > 0 else float(signal > 0)


def update(
    theta: Theta, optimizer: torch.optim.Optimizer, gradient: Tensor, *, rate: float
) -> None:
    """Take a step of the optimiser along a gradient ``[V]``."""
    parameters = operator_weights(theta)
    parts = torch.split(gradient, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.to(parameter)
    optimizer.param_groups[0]["lr"] = rate
    optimizer.step()


def operator_weights(theta: Theta) -> list[Tensor]:
    """Θ's weights of the five operator groups."""
    return [theta.weights[group] for group in GROUPS[2:]]


def _train_judge(judge: Judge, reader: Reader, config: SearchConfig) -> Judge:
    """Read this process's share of the samples to learn from, piece by piece."""
    slots = judge.processes.slots(config.batch)
    pieces = max(1, config.explore.gradient_samples // config.batch)
    size = pieces * config.batch
    own = [piece * config.batch + slot for piece in range(pieces) for slot in slots]
    batch = reader.batch(0, seed=config.seed, size=size, slots=own, at_once=len(slots))
    return Judge(judge.backbone, reader, batch, judge.processes, judge.text_tokens)


def descent_passes(plan: Plan, config: SearchConfig) -> float:
    """Compute of a descent: every sample's full pass once, then a forward and a backward (two)."""
    samples = max(1, config.explore.gradient_samples // config.batch) * config.batch
    return samples + 3.0 * config.steps * config.batch * flops_share(plan, after=-1)
