"""Folder: the run directory is the state. Every file is replaced in one step.

config.yaml, env.json, history.jsonl, theta.json, plan.json, checkpoint.safetensors; skipped.jsonl
names the samples that were not used. No pickle is written or read.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from eos.errors import ConfigError
from eos.models.backbone import Backbone
from eos.models.devices import environment_of
from eos.runs.files import write_atomically
from eos.runs.identity import check_same
from eos.searching.files import read_config, write_config
from eos.searching.settings import SearchConfig
from eos.space.activations import GROUPS, Group
from eos.space.theta import Theta

CHECKPOINT = "checkpoint.safetensors"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # of AdamW
SPARE = 8 * 2**20  # bytes that files besides the history need at most


@dataclass
class StartState:
    """State of one start: Θ, its optimiser, and its validation loss after the race."""

    theta: Theta
    optimizer: torch.optim.AdamW
    loss: float | None = None


@dataclass
class State:
    """Where a run is.

    Attributes:
        starts: every start.
        facts: backbone and data of the run; a resumed run must find the same.
        done: steps done, of all starts together.
        tried: samples looked at, and
        skipped: how many of them could not be used.
        steps: of the schedule that Θ has followed so far, and
        race_steps: how many of them each start had before the best continued.
    """

    starts: list[StartState]
    facts: dict[str, str]
    done: int = 0
    tried: int = 0
    skipped: int = 0
    steps: int = 0
    race_steps: int = 0

    @property
    def winner(self) -> int:
        """Index of the start that continues: the lowest loss, the first of equals."""
        losses = [float("inf") if start.loss is None else start.loss for start in self.starts]
        return losses.index(min(losses))


def prepare(folder: Path, config: SearchConfig, backbone: Backbone, *, sites: int) -> None:
    """Write the settings of a run; report a folder that cannot be used before the first step."""
    path = folder / "config.yaml"
    if path.exists():
        _take_up(folder, read_config(path), config)
    elif (folder / CHECKPOINT).exists():
        raise ConfigError(f"expected a config.yaml beside {folder / CHECKPOINT}, found none")
    if (folder / "plan.json").exists():
        return  # finished: what is there was made in the environment that it names
    write_config(path, config)
    environment = environment_of(backbone.model, seed=config.seed)
    write_atomically(folder / "env.json", json.dumps(environment, indent=2) + "\n")
    lines = config.steps * len(config.names) // config.log_every + 1
    needed = SPARE + lines * (600 + 170 * sites)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"expected {needed / 2**20:.0f} MiB of free space for {folder}, found "
            f"{free / 2**20:.0f}; free some, or name another folder"
        )


def _take_up(folder: Path, before: SearchConfig, config: SearchConfig) -> None:
    """Refuse another search; a descent may have more steps, for which its answer is put aside."""
    known, now, problems = before.identity(), config.identity(), []
    if config.method == before.method == "paper":
        known["steps"] = now["steps"]
        if config.steps < before.steps:
            problems = [f"expected steps={before.steps} or more, found {config.steps}"]
    check_same(folder, known, now, what="search", problems=problems)
    finished = folder / "plan.json"
    if config.steps > before.steps and finished.exists():
        finished.replace(folder / f"plan.after-{before.steps}-steps.json")


def json_values(theta: Theta, groups: Sequence[Group]) -> dict[Group, list[float | str]]:
    """Θ's values by group and site; infinities, which JSON does not have, as words."""
    return {
        group: [x if isfinite(x) else str(x) for x in theta.value(group).tolist()]
        for group in groups
    }


def save_state(folder: Path, state: State, *, theta: Theta) -> None:
    """Write the checkpoint, and ``theta`` for people, each in one step."""
    tensors: dict[str, Tensor] = {}
    for place, start in enumerate(state.starts):
        for group in GROUPS:
            weight = start.theta.weights[group]
            tensors[f"{place}.{group}"] = weight.detach()
            for name, moment in start.optimizer.state.get(weight, {}).items():
                tensors[f"{place}.{group}.{name}"] = torch.as_tensor(moment)
    counts = {"done": state.done, "tried": state.tried, "skipped": state.skipped}
    counts |= {"steps": state.steps, "race_steps": state.race_steps}
    losses = [start.loss for start in state.starts]
    note = {"schema": "eos.checkpoint/1", **counts, "losses": losses, "facts": state.facts}
    data = save({k: v.contiguous() for k, v in tensors.items()}, {"eos": json.dumps(note)})
    write_atomically(folder / CHECKPOINT, data)
    theta.save(folder / "theta.json")


def load_state(folder: Path, state: State) -> bool:
    """Take up what a folder holds; False if it holds nothing yet."""
    path = folder / CHECKPOINT
    if not path.exists():
        return False
    try:
        tensors, note = read_checkpoint(path)
    except (SafetensorError, ValueError, KeyError, TypeError) as failure:
        raise ConfigError(f"{path}: expected a checkpoint of a search, found: {failure}") from None
    check_same(folder, note["facts"], state.facts, what="search")
    state.done, state.tried, state.skipped = note["done"], note["tried"], note["skipped"]
    state.steps = note.get("steps", state.steps)  # not in files of earlier versions
    state.race_steps = note.get("race_steps", state.race_steps)
    for place, start in enumerate(state.starts):
        start.loss = note["losses"][place]
        for group in GROUPS:
            weight = start.theta.weights[group]
            weight.data.copy_(tensors[f"{place}.{group}"])
            if f"{place}.{group}.step" in tensors:
                start.optimizer.state[weight] = {
                    name: tensors[f"{place}.{group}.{name}"].clone() for name in MOMENTS
                }
    return True


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors of a checkpoint, and the counts, losses and facts in its metadata."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["eos"])
