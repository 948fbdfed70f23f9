"""Files that survive a process killed at any moment: a reader sees the old content or the new."""

import os
from pathlib import Path

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
