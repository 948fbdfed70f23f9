"""Devices: where a module computes, also when ``device_map`` keeps its weights elsewhere.

A weight that is offloaded, to memory or disk, is on no device until accelerate brings it in.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from eos.models.sharding import whole
from eos.runs.environment import environment


def default_device() -> torch.device:
    """Give the accelerator that torch sees, else the CPU."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found or torch.device("cpu")


def environment_of(model: PreTrainedModel, *, seed: int) -> dict[str, Any]:
    """Describe versions, machine, device and precision of a run of a model."""
    dtype = str(model.dtype).removeprefix("torch.")
    return environment(seed=seed, device=str(device_of(model)), dtype=dtype)


def device_of(module: nn.Module) -> torch.device:
    """Say where a module's inputs belong: where its first weight is when it computes.

    Quantised layers may hold their weights in buffers, or where torch does not see them.
    """
    owner, weight = next(
        (
            (part, weight)
            for part in module.modules()
            for weight in (*part.parameters(recurse=False), *part.buffers(recurse=False))
        ),
        (module, None),
    )
    if weight is None:
        return torch.device("cpu")
    return torch.device(owner._hf_hook.execution_device) if weight.is_meta else weight.device


def named_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Go through a model's state, whole, one module's in memory at a time."""
    from accelerate.utils import align_module_device

    for prefix, module in model.named_modules():
        passing = module._non_persistent_buffers_set
        with align_module_device(module):
            own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            for name, tensor in own:
                if name not in passing:
                    yield from _parts(f"{prefix}.{name}".lstrip("."), whole(tensor.detach()))


def _parts(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Name the plain tensors that a quantised one is made of: integers, scales."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        yield from _parts(f"{name}.{part}", getattr(tensor, part))
