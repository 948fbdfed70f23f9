"""Sharding: one frozen backbone spread over processes, each layer put together while it is used.

For models that no single device holds. torch's `fully_shard` gathers a module's weights for its own
forward and backward; code that reads them at another time, as scorers do, uses `gathered`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, distributed, nn


def shard(model: nn.Module, *, processes: int, device: torch.device) -> None:
    """Leave each process its part of every weight, on ``device``.

    The layers of all stacks, the decoder's and the vision tower's, are gathered one at a time; what
    is left, such as embeddings, is gathered with the model itself. Weights are those of the first
    process: the others need not have read any, and under ``--use_fsdp`` transformers does not.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if is_sharded(model):
        return
    mesh = init_device_mesh(device.type, (processes,))
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    layers = [layer for stack in reversed(stacks) for layer in stack]  # the innermost first
    for module in [*layers, model]:
        for tensor in [*module.parameters(), *module.buffers()]:
            if not _is_part(tensor):
                tensor.data = tensor.data.to(device)
                distributed.broadcast(tensor.data, 0)
        fully_shard(module, mesh=mesh)


def is_sharded(module: nn.Module) -> bool:
    """Whether `shard` has split this model."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FSDPModule

    return isinstance(module, FSDPModule)


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Hold a layer's weights together inside the block, if they are apart."""
    apart = is_sharded(module) and any(_is_part(weight) for weight in module.parameters())
    if not apart:
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()


def whole(weight: Tensor) -> Tensor:
    """Gather one weight; every process must call this."""
    together: Tensor = weight.full_tensor() if _is_part(weight) else weight  # type: ignore[operator]
    return together


def _is_part(weight: Tensor) -> bool:
    return hasattr(weight, "full_tensor")  # of a DTensor, whose import takes a second
