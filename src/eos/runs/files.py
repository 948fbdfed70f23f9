"""Files that survive a process killed at any moment: a reader sees the old content or the new."""

import os
from pathlib import Path
from tempfile import TemporaryFile

from eos.errors import ConfigError


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replace a file by new content in one step: temporary file beside it, fsync, rename.

    The temporary file has one name: what a kill leaves behind is replaced by the next write.
    """
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as failure:
        raise ConfigError(
            f"cannot write {path}: {failure.strerror}; what was there is unchanged"
        ) from None


def check_folder(folder: str | Path) -> None:
    """Raise unless files can be written to a folder, which need not exist; nothing is left there.

    Long work calls this first: an output that cannot be written is reported before it, not after.
    """
    folder = Path(folder).absolute()
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        with TemporaryFile(dir=existing):
            pass
    except OSError as failure:
        raise ConfigError(
            f"expected a folder that can be written to, found {folder}: {failure.strerror}; name "
            "another"
        ) from None


def check_file(path: str | Path) -> None:
    """Raise unless a file can be written, or replaced; nothing is left there."""
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"expected a file to write, found the folder {path}; name a file in it")
    check_folder(path.parent)
