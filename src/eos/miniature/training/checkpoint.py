"""Checkpoint: all that training needs to go on, in one file of tensors; and the finished model."""

from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlavaForConditionalGeneration

from eos.miniature.language import make_processor
from eos.miniature.model import PATCH, SIZE
from eos.miniature.training.student import Student

NAME = "checkpoint.safetensors"


def save(
    out: Path, student: Student, *, helpers: Sequence[torch.optim.Optimizer], step: int
) -> None:
    """Write weights, optimizers and the number of steps done, replacing the file before."""
    tensors = {f"student.{name}": value for name, value in student.state_dict().items()}
    for place, optimizer in enumerate(helpers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{place}.{index}.{name}"] = torch.as_tensor(value)
    copies = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    temporary = out / f"{NAME}.tmp"
    save_file(copies, temporary, metadata={"step": str(step)})
    temporary.replace(out / NAME)


def resume(out: Path, student: Student, *, helpers: Sequence[torch.optim.Optimizer]) -> int:
    """Read the checkpoint, if there is one; say how many steps are done."""
    if not (out / NAME).exists():
        return 0
    with safe_open(out / NAME, "pt") as file:
        step = int(file.metadata()["step"])
    tensors = load_file(out / NAME)
    start = "student."
    student.load_state_dict(
        {name.removeprefix(start): v for name, v in tensors.items() if name.startswith(start)}
    )
    for place, optimizer in enumerate(helpers):
        states: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for name, value in tensors.items():
            if name.startswith(f"optimizer.{place}."):
                index, key = name.split(".")[2:]
                states[int(index)][key] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": dict(states)})
    return step


def export(student: Student, folder: Path) -> None:
    """Write a Hugging Face folder: weights in half precision, tokenizer, processor.

    The configuration asks for float32, in which every processor can compute.
    """
    config = deepcopy(student.model.config)
    halved = LlavaForConditionalGeneration(config).half()
    halved.load_state_dict({n: v.half() for n, v in student.model.state_dict().items()})
    halved.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"float16"', '"float32"'))
    make_processor(size=SIZE, patch=PATCH).save_pretrained(folder)
