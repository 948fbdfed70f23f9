"""Crew: worker processes that make pieces side by side.

Launched by `accelerate`, each process makes the pieces whose number modulo the number of processes
is its rank, and waits for what others make in the shared folder.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from eos.errors import EosError
from eos.programme.pieces import Piece
from eos.programme.running import Course, Underway, Watcher
from eos.programme.scope import Scope
from eos.programme.workshop import Facts

POLL = 0.5  # seconds between looks for what other processes have made
# of a launcher: a worker is a process of its own, and a search in it must not look for others
LAUNCHED = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
LAUNCHED |= {"GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE"}
LAUNCHERS = ("ACCELERATE_", "TORCHELASTIC_", "FSDP_")


def ranks() -> tuple[int, int]:
    """Say which of how many launched processes this is."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@dataclass
class WorkerProcess:
    """A worker, and the piece that it makes."""

    number: int
    process: subprocess.Popen[str]
    piece: Piece | None = None

    def make(self, piece: Piece) -> None:
        """Name the next piece."""
        assert self.process.stdin is not None
        self.piece = piece
        self.process.stdin.write(piece.name + "\n")
        self.process.stdin.flush()


@dataclass
class Crew:
    """Workers, and what they say: pairs of a worker's number and a message; None at its end."""

    workers: list[WorkerProcess]
    said: "Queue[tuple[int, dict[str, Any] | None]]"

    def facts(self) -> Facts:
        """Wait until every worker has loaded the model."""
        found = [self._next(None) for _ in self.workers]
        return Facts(**found[0][1]["facts"])

    def _next(self, timeout: float | None) -> tuple[int, dict[str, Any]]:
        """Hear the next message; raise what went wrong."""
        number, message = self.said.get(timeout=timeout)
        worker = self.workers[number]
        what = "loading the model" if worker.piece is None else worker.piece.name
        if message is None:
            code = worker.process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise EosError(
                f"{what}: a worker process ended with {how}; rerun the same command to resume"
            )
        if "error" in message:
            raise EosError(f"{what}: {message['error']}")
        return number, message

    def run(self, course: Course, watch: Watcher, *, share: tuple[int, int] = (0, 1)) -> None:
        """Make all pieces that are not done; with a share, those of this rank, and wait."""
        rank, world = share
        own = {x.name for place, x in enumerate(course.pieces) if place % world == rank}
        course.look()
        watch(course)
        while len(course.done) < len(course.pieces):
            for worker in self.workers:
                chosen = [x for x in course.pieces if x.name in own and course.ready(x)]
                if worker.piece is None and chosen:
                    course.underway[chosen[0].name] = Underway(chosen[0])
                    worker.make(chosen[0])
            try:
                self._hear(course, *self._next(POLL))
            except Empty:
                if world > 1:
                    course.look()
            watch(course)

    def _hear(self, course: Course, number: int, message: dict[str, Any]) -> None:
        worker = self.workers[number]
        assert worker.piece is not None
        if "progress" in message:
            course.underway[worker.piece.name] = Underway(worker.piece, *message["progress"])
        else:
            course.finish(worker.piece)
            worker.piece = None


@contextmanager
def crew(
    folder: Path,
    scope: Scope,
    *,
    jobs: int,
    studies: Sequence[str] | None,
) -> Iterator[Crew]:
    """Start workers, and end them with the block."""
    said: Queue[tuple[int, dict[str, Any] | None]] = Queue()
    order = {
        "folder": str(folder),
        "scope": scope.model_dump(mode="json"),
        "threads": _threads(jobs),
        "studies": None if studies is None else list(studies),
    }
    workers: list[WorkerProcess] = []
    listeners: list[Thread] = []
    try:
        for number in range(jobs):
            workers.append(_start(number, folder, order))
            listeners.append(Thread(target=_listen, args=(workers[-1], said), daemon=True))
            listeners[-1].start()
        yield Crew(workers, said)
    finally:
        for worker in workers:
            worker.process.kill()
        for worker, listener in zip(workers, listeners, strict=True):
            listener.join()
            with worker.process:  # closes its pipes
                pass


def _threads(jobs: int) -> int:
    """Divide the processors among the workers of this machine, unless the user has chosen."""
    if "OMP_NUM_THREADS" in os.environ:
        return max(1, int(os.environ["OMP_NUM_THREADS"].split(",")[0]))
    return max(1, (os.cpu_count() or 1) // (jobs * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def _start(number: int, folder: Path, order: dict[str, Any]) -> WorkerProcess:
    rank, world = ranks()
    log = folder / "logs" / f"worker-{rank}-{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "eos.programme.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
            encoding="utf-8",
            env=_environment(world),
            start_new_session=True,  # Ctrl-C is for the process that shows how to go on
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    return WorkerProcess(number, process)


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


def _listen(worker: WorkerProcess, said: "Queue[tuple[int, dict[str, Any] | None]]") -> None:
    assert worker.process.stdout is not None
    for line in worker.process.stdout:
        said.put((worker.number, json.loads(line)))
    said.put((worker.number, None))
