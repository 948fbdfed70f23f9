"""Environment: versions, machine and source of a run, for its ``env.json``."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from eos.version import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pillow", "pydantic")
GIT_TIMEOUT = 10  # seconds to wait for git


def environment(*, seed: int, device: str, dtype: str) -> dict[str, Any]:
    """Describe versions, machine, precision and the state of the source."""
    return {
        "schema": "eos.env/1",
        "eos": __version__,
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "dtype": dtype,
        "seed": seed,
        "git": _git_state(Path(__file__).parents[3]),
    }


def package_version(name: str) -> str | None:
    """Find the version of an installed package; None if there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git_state(root: Path) -> dict[str, Any] | None:
    """Commit of the source and whether it was changed; None if it is not a checkout."""
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changed)}


def _git(root: Path, *arguments: str) -> str:
    # without locks, so as not to block a commit that is under way
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT)
    return done.stdout.strip()
