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
from eos.miniature.training.course import COURSE, Phase, phase_at, rate_at, total_steps
from eos.miniature.training.student import Student, examine, optimizers, study

LOGGED = 20  # steps between lines of the log


def train(
    out: Path,
    config: LlavaConfig,
    *,
    course: Sequence[Phase] = COURSE,
    seed: int = 0,
    save_every: int = 50,
    examine_every: int = 100,
) -> Student:
    """Follow a course from where ``out`` stands to its end, and write the weights."""
    out.mkdir(parents=True, exist_ok=True)
    student = Student(config, seed=seed)
    helpers = optimizers(student)
    step, total, begun = resume(out, student, helpers=helpers), total_steps(course), time.time()
    with _progress() as bar:
        task = bar.add_task("", total=total, completed=step)
        while step < total:
            phase, _ = phase_at(course, step)
            found = study(student, phase, np.random.default_rng([0, 0, seed, step]))
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            for optimizer in helpers:
                for group in optimizer.param_groups:
                    group["lr"] = group["base"] * rate_at(course, step)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            bar.update(task, completed=step, description=_described(phase, found))
            if step % LOGGED == 0 or step == total:
                seen = step % examine_every == 0 or step == total
                known = examine(student, phase, seed=seed) if seen else None
                _log(out, step=step, phase=phase, begun=begun, found=found, known=known)
            if step % save_every == 0 or step == total:
                save(out, student, helpers=helpers, step=step)
    export(student, out / "weights")
    return student


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))


def _described(phase: Phase, found: dict[str, float]) -> str:
    losses = " ".join(f"{name} {value:.2f}" for name, value in found.items())
    return f"{phase.lesson} {phase.size}: {losses}"


def _log(
    out: Path,
    *,
    step: int,
    phase: Phase,
    begun: float,
    found: dict[str, float],
    known: dict[str, float] | None,
) -> None:
    record: dict[str, Any] = {"step": step, "lesson": phase.lesson, "size": phase.size}
    record["seconds"] = round(time.time() - begun, 1)  # since this process began
    record |= {name: round(value, 4) for name, value in found.items()}
    if known is not None:
        record["validation"] = known
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
