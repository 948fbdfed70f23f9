"""Pool: worker processes that make pieces side by side.

Launched by `accelerate`, each process makes the pieces whose number modulo the number of processes
is its rank, and waits for what others make in the shared folder.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from eos.errors import EosError
from eos.programme.context import Context, ModelInfo
from eos.programme.pieces import Piece
from eos.programme.running import ProgrammeProgress, Watcher

POLL = 0.5  # seconds between checks for what other processes have made
# of a launcher: a worker is a process of its own, and a search in it must not look for others
LAUNCHED = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
LAUNCHED |= {"GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE"}
LAUNCHERS = ("ACCELERATE_", "TORCHELASTIC_", "FSDP_")


def rank_and_world() -> tuple[int, int]:
    """Say which of how many launched processes this is."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@dataclass
class WorkerProcess:
    """A worker process, and the piece that it is making."""

    process: subprocess.Popen[str]
    piece: Piece | None = None

    def send(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self, messages: "Queue[tuple[WorkerProcess, dict[str, Any] | None]]") -> None:
        """Put the messages on its standard output into a queue; None at its end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            messages.put((self, json.loads(line)))
        messages.put((self, None))


@dataclass
class WorkerPool:
    """Workers, and the queue of their messages, each with the worker that sent it."""

    workers: list[WorkerProcess] = field(default_factory=list)
    messages: "Queue[tuple[WorkerProcess, dict[str, Any] | None]]" = field(default_factory=Queue)

    def model_info(self) -> ModelInfo:
        """Wait until every worker has loaded the model."""
        found = [self._next_message(None) for _ in self.workers]
        return ModelInfo(**found[0][1]["model"])

    def _next_message(self, timeout: float | None) -> tuple[WorkerProcess, dict[str, Any]]:
        """Wait for the next message; raise what went wrong in a worker."""
        worker, message = self.messages.get(timeout=timeout)
        what = "loading the model" if worker.piece is None else worker.piece.name
        if message is None:
            code = worker.process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise EosError(
                f"{what}: a worker process ended with {how}; rerun the same command to resume"
            )
        if "error" in message:
            raise EosError(f"{what}: {message['error']}")
        return worker, message

    def run(
        self, progress: ProgrammeProgress, watch: Watcher, *, rank: int = 0, world: int = 1
    ) -> None:
        """Make all pieces that are not done; of several processes, those of this rank, and wait."""
        own = {x.name for place, x in enumerate(progress.pieces) if place % world == rank}
        progress.find_done()
        watch(progress)
        while len(progress.done) < len(progress.pieces):
            for worker in self.workers:
                ready = [x for x in progress.pieces if x.name in own and progress.ready(x)]
                if worker.piece is None and ready:
                    worker.piece = ready[0]
                    progress.running[worker.piece.name] = (0.0, 0.0)
                    worker.send(worker.piece.name)
            try:
                _handle(progress, *self._next_message(POLL))
            except Empty:
                if world > 1:
                    progress.find_done()
            watch(progress)


def _handle(progress: ProgrammeProgress, worker: WorkerProcess, message: dict[str, Any]) -> None:
    assert worker.piece is not None
    if "progress" in message:
        done, total = message["progress"]
        progress.running[worker.piece.name] = (done, total)
    else:
        progress.finish(worker.piece)
        worker.piece = None


@contextmanager
def worker_pool(
    context: Context, *, jobs: int, studies: Sequence[str] | None
) -> Iterator[WorkerPool]:
    """Start workers, and end them with the block."""
    pool = WorkerPool()
    setup = {
        "folder": str(context.folder),
        "scope": context.scope.model_dump(mode="json"),
        "threads": _threads(jobs),
        "studies": None if studies is None else list(studies),
    }
    with ExitStack() as stack:  # ends each worker: killed, read to its end, its pipes closed
        for number in range(jobs):
            worker = WorkerProcess(stack.enter_context(_start_process(number, context.folder)))
            reader = Thread(target=worker.read, args=(pool.messages,), daemon=True)
            reader.start()
            stack.callback(reader.join)
            stack.callback(worker.process.kill)
            worker.send(json.dumps(setup))
            pool.workers.append(worker)
        yield pool


def _threads(jobs: int) -> int:
    """Divide the processors among the workers of this machine, unless the user has chosen."""
    if "OMP_NUM_THREADS" in os.environ:
        return max(1, int(os.environ["OMP_NUM_THREADS"].split(",")[0]))
    return max(1, (os.cpu_count() or 1) // (jobs * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def _start_process(number: int, folder: Path) -> subprocess.Popen[str]:
    rank, world = rank_and_world()
    log = folder / "logs" / f"worker-{rank}-{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as written:
        return subprocess.Popen(
            [sys.executable, "-m", "eos.programme.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
            encoding="utf-8",
            env=_environment(world),
            start_new_session=True,  # Ctrl-C is for the process that shows how to go on
        )


def _environment(world: int) -> dict[str, str]:
    """Hide a launcher from workers; each of its processes on a machine has a GPU of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in LAUNCHED and not name.startswith(LAUNCHERS)
    }
    if world > 1 and "CUDA_VISIBLE_DEVICES" not in kept and "LOCAL_RANK" in os.environ:
        kept["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
    return kept
