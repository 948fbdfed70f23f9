"""Processes: a search or an evaluation on one process or on several, through accelerate.

In a search every process runs the backbone on its slots of each batch; what they found is summed,
so that all move Θ alike. In an evaluation each answers batches of its own. Each holds all of the
backbone, on one device or as ``device_map`` places it; launched with ``--use_fsdp``, each holds its
part, and they run the same passes side by side, in searches only.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import torch
import torch.distributed as dist
from torch import Tensor

from eos.errors import ConfigError

SHARDING = "ACCELERATE_USE_FSDP"  # set by `accelerate launch --use_fsdp`
CPUS = "ACCELERATE_USE_CPU"  # by `--cpu`
OTHERS = {  # which would take the model out of our hands
    "ACCELERATE_USE_DEEPSPEED": "--use_deepspeed",
    "ACCELERATE_USE_MEGATRON_LM": "--use_megatron_lm",
}


class Processes:
    """The processes of a run, and which of them this is.

    Attributes:
        rank: of this process.
        count: of all.
        device: where this one's model belongs.
        sharding: whether each holds only its part of the backbone.
    """

    def __init__(self) -> None:
        from accelerate import PartialState  # type: ignore[import-untyped]  # takes a second that a command's help must not

        refused = [option for variable, option in OTHERS.items() if _says(variable)]
        if refused:
            raise ConfigError(
                f"expected --multi_gpu or --use_fsdp, found {refused[0]}; for a backbone larger "
                "than one device launch with --use_fsdp, or set device_map=auto"
            )
        # without this accelerate treats every CPU process as the only one
        on_cpu = not torch.accelerator.is_available() or _says(CPUS)
        state = PartialState(cpu=on_cpu)
        self.rank: int = state.process_index
        self.count: int = state.num_processes
        self.device: torch.device = state.device
        self.sharding: bool = self.count > 1 and _says(SHARDING)
        self._state = state

    @property
    def main(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def slots(self, batch: int) -> range:
        """Say which slots of a global batch are this process's."""
        if batch < self.count:
            raise ConfigError(
                f"expected a batch of at least {self.count}, one sample for each process; found "
                f"{batch}"
            )
        if self.sharding and batch % self.count:
            raise ConfigError(
                f"expected a batch that {self.count} processes share evenly, for their passes go "
                f"side by side when the backbone is sharded; found {batch}"
            )
        return range(self.rank, batch, self.count)

    def refuse_sharding(self) -> None:
        """Raise if the backbone would be sharded: batches of their own are no passes in step."""
        if self.sharding:
            raise ConfigError(
                "expected --multi_gpu, for each process answers questions of its own; found "
                "--use_fsdp. A backbone larger than one device: one process, --device auto"
            )

    def total(self, values: Tensor) -> Tensor:
        """Sum over all processes, the same bits on each."""
        if self.count == 1:
            return values
        there = values.to(self._where())
        dist.all_reduce(there)
        return there.to(values.device)

    def of_main(self, values: Sequence[float]) -> list[float]:
        """Give every process the numbers that the main one found."""
        if self.count == 1:
            return list(values)
        there = torch.tensor(values, dtype=torch.float64, device=self._where())
        dist.broadcast(there, 0)
        return [float(x) for x in there.tolist()]

    def gathered(self, numbers: Sequence[int], *, size: int) -> list[int]:
        """Collect whole numbers of all processes, at most ``size`` of each."""
        if self.count == 1:
            return list(numbers)
        own = [*numbers, *[-1] * (size - len(numbers))]
        there = torch.tensor(own, device=self._where())
        found = [torch.empty_like(there) for _ in range(self.count)]
        dist.all_gather(found, there)
        return [int(x) for part in found for x in part.tolist() if x >= 0]

    def wait(self) -> None:
        """Wait until all processes have called this."""
        self._state.wait_for_everyone()

    def leave(self) -> None:
        """End the process group."""
        if self.count > 1:
            self._state.destroy_process_group()

    def _where(self) -> torch.device:
        return torch.device("cpu") if dist.get_backend() == "gloo" else self.device


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Set an event at the first SIGINT (Ctrl-C) or SIGTERM; the second one ends at once."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping  # only the main thread receives signals
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _says(variable: str) -> bool:
    return os.environ.get(variable, "").lower() == "true"
