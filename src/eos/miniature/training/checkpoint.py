"""Checkpoint: the state of training in one file of tensors, to resume from; the trained model."""

from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from eos.miniature.language import make_processor
from eos.miniature.model import PATCH, SIZE
from eos.miniature.training.step import TrainingModel

NAME = "checkpoint.safetensors"
WEIGHTS = "model."  # prefix of the names of weights


def save(
    out: Path, model: TrainingModel, *, optimizers: Sequence[torch.optim.Optimizer], step: int
) -> None:
    """Write weights, optimizers and the number of steps done, replacing the file before."""
    tensors = {f"{WEIGHTS}{name}": value for name, value in model.state_dict().items()}
    for place, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{place}.{index}.{name}"] = torch.as_tensor(value)
    copies = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    temporary = out / f"{NAME}.tmp"
    save_file(copies, temporary, metadata={"step": str(step)})
    temporary.replace(out / NAME)


def resume(out: Path, model: TrainingModel, *, optimizers: Sequence[torch.optim.Optimizer]) -> int:
    """Read the checkpoint, if there is one; return how many steps are done."""
    if not (out / NAME).exists():
        return 0
    with safe_open(out / NAME, "pt") as file:
        step = int(file.metadata()["step"])
    tensors = load_file(out / NAME)
    model.load_state_dict(
        {name.removeprefix(WEIGHTS): v for name, v in tensors.items() if name.startswith(WEIGHTS)}
    )
    for place, optimizer in enumerate(optimizers):
        states: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for name, value in tensors.items():
            if name.startswith(f"optimizer.{place}."):
                index, key = name.split(".")[2:]
                states[int(index)][key] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": dict(states)})
    return step


def export(model: TrainingModel, folder: Path) -> None:
    """Write a Hugging Face folder: weights in half precision, tokenizer, processor.

    The configuration asks for float32, in which every processor can compute.
    """
    deepcopy(model.model).half().save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"float16"', '"float32"'))
    make_processor(size=SIZE, patch=PATCH).save_pretrained(folder)
