"""Run: the state of a descent, its log, and its checkpoints."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from eos.data.batches import Batch, Reader
from eos.data.samples import Skipped
from eos.errors import DataError, StoppedError
from eos.models.backbone import Backbone
from eos.runs.journal import Journal
from eos.runs.processes import Processes
from eos.searching.folder import State, json_values, save_state
from eos.searching.gradients import StepGradients
from eos.searching.schedule import (
    Turn,
    drawn_budget,
    learning_rate,
    total_turns,
    turn_at,
)
from eos.searching.settings import SearchConfig
from eos.searching.trackers import Trackers
from eos.space import cost
from eos.space.activations import GROUPS
from eos.space.discretise import ACTIVE_GATE
from eos.space.theta import Theta

MOST_SKIPPED = 0.05  # of the samples looked at
AT_LEAST = 100  # samples that count as looked at, so that one bad one does not end a young run


@dataclass(frozen=True)
class Status:
    """What is shown while a search runs; ``loss`` and the rest are of steps of a descent.

    Attributes:
        done: steps done, or parts of the stage.
        total: of how many.
        start: which start is under way, or which stage.
    """

    done: int
    total: int
    start: str
    loss: float | None = None
    final_tokens: int = 0
    active_layers: float = 0.0
    flops_ratio: float = 1.0
    layers: list[int] = field(default_factory=list)
    skipped: int = 0


Watch = Callable[[Status], None]


@dataclass
class Run:
    """A run of the descent: its settings, its inputs and its state."""

    backbone: Backbone
    config: SearchConfig
    reader: Reader
    validation_reader: Reader
    validation_batch: Batch
    processes: Processes
    folder: Path
    state: State
    history: Journal
    unused: Journal
    trackers: Trackers
    watch: Watch | None = None
    stopping: Event = field(default_factory=Event)


def check_finite(run: Run, found: StepGradients, batch: Batch, turn: Turn) -> None:
    """Stop at a loss that is no number, with the last good Θ saved and the batch named."""
    if found.finite:
        return
    own = [answered.index for answered in batch.answered]
    indices = run.processes.gathered(own, size=run.config.batch)
    keep_state(run)
    ids = ", ".join(run.reader.source.name(index) for index in indices)
    bad = {
        name: value for name, value in found.terms.items() if value != value or abs(value) > 1e30
    }
    raise DataError(
        f"expected finite losses and gradients, found {bad or 'gradients that are not'} at step "
        f"{turn.step} in the batch {ids}. The last good Θ is in {run.folder / 'theta.json'}; look "
        "at these samples, or lower lr"
    )


def note_step(run: Run, turn: Turn, found: StepGradients, *, norm: float) -> None:
    """Log every term and every variable of a step, and show where the search is."""
    config, theta = run.config, run.state.starts[turn.start].theta
    schedule = theta.retain_schedule()
    ratio = cost.flops_ratio(
        schedule,
        run.backbone.dims,
        tokens=theta.visual_tokens,
        text_tokens=config.objective.text_length,
    )
    gates = theta.g.detach()
    status = Status(
        done=run.state.done + 1,
        total=total_turns(config),
        start=config.names[turn.start],
        loss=found.terms["total"],
        final_tokens=schedule[-1],
        active_layers=float(gates.sum()),
        flops_ratio=float(ratio),
        layers=[x for x, g in zip(theta.sites, gates.tolist(), strict=True) if g > ACTIVE_GATE],
        skipped=run.state.skipped + found.skipped,
    )
    if run.watch is not None and run.processes.main:
        run.watch(status)
    if run.processes.main and logged(config, turn):
        run.history.append(run.state.done, _entry(config, theta, turn, found, status, norm))
        numbers = {f"loss/{name}": value for name, value in found.terms.items()}
        numbers |= {"final_tokens": schedule[-1], "active_layers": status.active_layers}
        numbers |= {"flops_ratio": status.flops_ratio, "gradient_norm": norm}
        run.trackers.log(numbers, step=run.state.done)


def note_skipped(journal: Journal, turn: int, skipped: Sequence[Skipped]) -> None:
    """Name samples that were not used."""
    for sample in skipped:
        journal.append(turn, {"id": sample.id, "reason": sample.reason})


def skipped_journal(folder: Path, processes: Processes) -> Journal:
    """Where a process names the samples that it does not use."""
    own = "" if processes.main else f"-{processes.rank}"
    return Journal(folder / f"skipped{own}.jsonl")


def skipped_files(folder: Path) -> list[Path]:
    """List the files, of whichever process, that name samples."""
    found = sorted(folder.glob("skipped*.jsonl"))
    return [path for path in found if Journal(path).whole_lines()]


def count_skipped(folder: Path) -> int:
    """Count the samples that a run's files name, each once however often it was skipped."""
    entries = [entry for path in skipped_files(folder) for entry in Journal(path).entries()]
    return len({entry["id"] for entry in entries})


def keep_step(run: Run, found: StepGradients) -> None:
    """Count, save when it is time, and stop if it must be."""
    state, config = run.state, run.config
    state.tried, state.skipped = state.tried + found.tried, state.skipped + found.skipped
    too_many = state.skipped > MOST_SKIPPED * max(state.tried, AT_LEAST)
    ended = state.done == total_turns(config)
    if ended or found.stop or too_many or state.done % config.save_every == 0:
        keep_state(run)
    if too_many:
        reasons = _reasons(run.folder)
        raise DataError(
            f"expected at most {MOST_SKIPPED:.0%} unusable samples, found {state.skipped} of "
            f"{state.tried}; {run.folder / 'skipped.jsonl'} names them, such as: {reasons}"
        )
    if found.stop and not ended:
        raise StoppedError(
            f"stopped after {state.done} of {total_turns(config)} steps; all of it is in "
            f"{run.folder}. Rerun to resume"
        )


def keep_state(run: Run) -> None:
    """Write journals first, then the checkpoint that refers to their lines."""
    run.unused.flush()
    if run.processes.main:
        run.history.flush()
        done = max(run.state.done - 1, 0)
        turn = turn_at(run.config, done, winner=run.state.winner)
        save_state(run.folder, run.state, theta=run.state.starts[turn.start].theta)


def _entry(
    config: SearchConfig,
    theta: Theta,
    turn: Turn,
    found: StepGradients,
    status: Status,
    norm: float,
) -> dict[str, Any]:
    """Write one line of the history: the step as it was, before Θ moved."""
    return {
        "start": status.start,
        "step": turn.step,
        "budget": drawn_budget(config, turn.step),
        "lr": learning_rate(config, turn.step),
        "loss": found.terms,
        "gradient_norm": norm,
        "gradient_norms": found.norms,
        "final_tokens": status.final_tokens,
        "expected_final_tokens": float(theta.expected_schedule()[-1].detach()),
        "active_layers": status.active_layers,
        "flops_ratio": status.flops_ratio,
        "layers": status.layers,
        "gate_temperature": theta.gate_temperature,
        "budget_temperature": theta.budget_temperature,
        "theta": json_values(theta, GROUPS),
    }


def logged(config: SearchConfig, turn: Turn) -> bool:
    """Whether a step is written down."""
    last = (config.steps - 1, config.race_steps - 1)
    return turn.step % config.log_every == 0 or turn.step in last


def _reasons(folder: Path) -> str:
    """Quote a few samples that were not used, of whichever process."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("skipped*.jsonl"))]
    return " | ".join("".join(texts).splitlines()[-3:])
