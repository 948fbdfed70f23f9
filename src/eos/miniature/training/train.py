"""Train the miniature: ``python -m eos.miniature.training.train --out DIR``.

First the vision tower, supervised patch by patch; then the whole model on small images
with many questions each; then larger and larger ones. Every step's data follows from the seed and
the step's number, and all that is needed to go on is saved every few minutes: the same command
again continues where it stopped, with the result it would have had.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn
from transformers import LlavaConfig

from eos.miniature.model import miniature_config
from eos.miniature.training.checkpoint import export, resume, save
from eos.miniature.training.schedule import SCHEDULE, Phase, phase_at, rate_at, total_steps
from eos.miniature.training.step import TrainingModel, make_optimizers, training_step, validate

LOG_EVERY = 20  # steps between lines of the log


def train(
    out: Path,
    config: LlavaConfig,
    *,
    schedule: Sequence[Phase] = SCHEDULE,
    seed: int = 0,
    save_every: int = 50,
    validate_every: int = 100,
) -> TrainingModel:
    """Train to the end of the schedule, resuming from ``out``, and write the weights."""
    out.mkdir(parents=True, exist_ok=True)
    model = TrainingModel(config, seed=seed)
    optimizers = make_optimizers(model)
    step, total = resume(out, model, optimizers=optimizers), total_steps(schedule)
    begun = time.time()
    with _progress() as bar:
        task = bar.add_task("", total=total, completed=step)
        while step < total:
            phase, _ = phase_at(schedule, step)
            losses = training_step(model, phase, np.random.default_rng([0, 0, seed, step]))
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = group["base"] * rate_at(schedule, step)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            bar.update(task, completed=step, description=_described(phase, losses))
            if step % LOG_EVERY == 0 or step == total:
                due = step % validate_every == 0 or step == total
                accuracies = validate(model, phase, seed=seed) if due else None
                _log(out, losses, accuracies, step=step, phase=phase, begun=begun)
            if step % save_every == 0 or step == total:
                save(out, model, optimizers=optimizers, step=step)
    export(model, out / "weights")
    return model


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))


def _described(phase: Phase, losses: dict[str, float]) -> str:
    values = " ".join(f"{name} {value:.2f}" for name, value in losses.items())
    return f"{phase.objective} {phase.size}: {values}"


def _log(
    out: Path,
    losses: dict[str, float],
    accuracies: dict[str, float] | None,
    *,
    step: int,
    phase: Phase,
    begun: float,
) -> None:
    record: dict[str, Any] = {"step": step, "lesson": phase.objective, "size": phase.size}
    record["seconds"] = round(time.time() - begun, 1)  # since this process began
    record |= {name: round(value, 4) for name, value in losses.items()}
    if accuracies is not None:
        record["validation"] = accuracies
    with (out / "training.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def main(
    out: Annotated[Path, typer.Option(help="Where checkpoints, log and weights go.")],
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 0,
) -> None:
    """Train the miniature from scratch, or go on with it."""
    train(out, miniature_config(), seed=seed)


if __name__ == "__main__":
    typer.run(main)
