"""Lock: one run at a time writes to a folder."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from eos.errors import ConfigError

LOCK = ".lock"  # left behind by a kill it means nothing: what counts is who holds it
WAIT = 3.0  # seconds within which the children of a killed run end


@contextmanager
def locked(folder: Path, *, main: bool = True) -> Iterator[None]:
    """Keep other runs out of a folder until the block ends; a process that ends holds nothing.

    Args:
        folder: of the run; made if there is none, and removed again if nothing was written.
        main: whether this is the process of a run that writes its files; the others of the same
            run hold nothing.
    """
    if not main:
        yield
        return
    path = folder / LOCK
    lock = FileLock(path, timeout=WAIT)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"expected a folder that no other process writes to, found {folder} in use; wait until "
            "that process has ended, or name another folder"
        ) from None
    except OSError as failure:
        raise ConfigError(f"cannot write to {folder}: {failure.strerror}; name another") from None
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        lock.release()
        with suppress(OSError):
            folder.rmdir()  # only if it is empty
