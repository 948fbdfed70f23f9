"""Diagnosis: what this machine and installation can do, for `eos doctor`.

Half precision is tried in processes of its own: a CPU or a library that announces instructions it
does not have ends the process that uses them.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from eos.runs.environment import PACKAGES, package_version
from eos.version import __version__

OPTIONAL = {
    "datasets": "data.kind=hub",
    "optuna": "method=tpe",
    "matplotlib": "figures",
    "tensorboard": "trackers=[tensorboard]",
    "wandb": "trackers=[wandb]",
    "flash-attn": "--attention flash_attention_2",
}
HALVES = ("bfloat16", "float16")
PROBE_TIMEOUT = 300  # seconds for a process that imports torch and multiplies
# limits oneDNN to instructions that all CPUs of that class have
REMEDY = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
PROBE = """
import torch
a = torch.ones(256, 256, dtype=torch.{dtype})
assert (a @ a)[0, 0] == 256
assert torch.nn.functional.linear(a[:1], a)[0, 0] == 256
x = a.view(1, 4, 64, 256)
assert torch.nn.functional.scaled_dot_product_attention(x, x, x).isfinite().all()
assert torch.bmm(x[0], x[0].mT)[0, 0, 0] == 256
patches = torch.nn.functional.conv2d(a.view(1, 4, 128, 128), a[:8].view(8, 4, 8, 8), stride=8)
assert patches.max() == 256
"""


def diagnose(folder: Path | None = None) -> dict[str, Any]:
    """Describe versions, devices, attention, half precision on the CPU, free disk and memory.

    Args:
        folder: whose disk counts; the working directory if None.
    """
    memory = psutil.virtual_memory()
    disk = shutil.disk_usage(folder or Path.cwd())
    return {
        "eos": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: package_version(name) for name in (*PACKAGES, "accelerate", "psutil")},
        "optional": {name: package_version(name) for name in OPTIONAL},
        "devices": devices(),
        "attention": attention_kernels(),
        "cpu_half_precision": {dtype: try_half_precision(dtype) for dtype in HALVES},
        "memory": {"free": memory.available, "total": memory.total},
        "disk": {"free": disk.free, "total": disk.total},
    }


def devices() -> list[dict[str, Any]]:
    """List the CPU and the accelerators that torch sees."""
    found: list[dict[str, Any]] = [
        {"name": "cpu", "what": f"{os.cpu_count()} processors, {torch.get_num_threads()} threads"}
    ]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        what = torch.cuda.get_device_name(index)
        found.append({"name": f"cuda:{index}", "what": what, "free": free, "total": total})
    if torch.backends.mps.is_available():
        found.append({"name": "mps", "what": "Apple GPU"})
    return found


def attention_kernels() -> dict[str, str]:
    """Say which values of ``--attention`` work here, and which kernels SDPA may choose from."""
    gpu = torch.cuda.is_available()
    kernels: Any = torch.backends.cuda  # torch does not annotate them; the CPU has two
    enabled = {
        "flash": kernels.flash_sdp_enabled(),
        "memory-efficient": gpu and kernels.mem_efficient_sdp_enabled(),
        "cuDNN": gpu and kernels.cudnn_sdp_enabled(),
        "math": kernels.math_sdp_enabled(),
    }
    flash = "yes" if find_spec("flash_attn") and gpu else "no: needs a GPU and flash-attn"
    names = ", ".join(name for name, on in enabled.items() if on)
    return {"sdpa": f"yes: {names}", "eager": "yes", "flash_attention_2": flash}


def try_half_precision(dtype: str) -> str:
    """Multiply in half precision on the CPU, in another process; say how that ends."""
    code = PROBE.format(dtype=dtype)
    found = run_probe(code)
    if found == "works":
        return found
    name, value = next(iter(REMEDY.items()))
    if name not in os.environ and run_probe(code, REMEDY) == "works":
        return f"{found}; works with {name}={value} in the environment"
    return f"{found}; use --dtype float32"


def run_probe(code: str, variables: Mapping[str, str] | None = None) -> str:
    """Run Python code in another process; "works", or how it ended."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"fails: no end within {PROBE_TIMEOUT} s"
    if done.returncode == 0:
        return "works"
    if done.returncode < 0:
        return f"fails: {signal.Signals(-done.returncode).name}"
    lines = done.stderr.strip().splitlines()
    return f"fails: {lines[-1] if lines else f'exit code {done.returncode}'}"
