"""Identity: a folder or file belongs to one run; a run with other settings is refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eos.errors import ConfigError, numbered


def check_same(
    path: Path,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    what: str,
    problems: Sequence[str] = (),
) -> None:
    """Raise `ConfigError` if any entry of ``now`` differs from ``before``.

    Args:
        path: of what was written before.
        before: what it was written with.
        now: what it is to be resumed with.
        what: was written, for the message.
        problems: further differences.
    """
    differences = [
        f"expected {name} {before.get(name)!r}, found {found!r}"
        for name, found in now.items()
        if before.get(name) != found
    ]
    if differences or problems:
        raise ConfigError(
            f"{path} holds another {what}: {numbered([*differences, *problems])}\nUse another "
            "folder, or the same settings"
        )
