"""Kill a search at random moments, again and again, and compare its end with that of a quiet one.

    python benchmarks/kill_search.py --kills 10

Makes a small random sibling of the miniature, so that it needs nothing; every kill is a SIGKILL of
a real process. Ends with exit code 1 if any file of the result differs.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from eos.miniature.language import make_processor
from eos.miniature.model import PATCH, SIZE, miniature_config, new_model

FILES = ("theta.json", "history.jsonl", "plan.json", "checkpoint.safetensors")


def command(model: Path, out: Path, steps: int) -> list[str]:
    """Write the command of a small search that saves often and races."""
    settings = [f"backbone={model}", f"steps={steps}", "batch=2", "micro_batch=null"]
    settings += ["validation.samples=4", "race=0.2", "save_every=3", "objective.align_layers=null"]
    return [sys.executable, "-m", "eos", "search", *settings, "--quiet", "--out", str(out)]


def start(model: Path, out: Path, steps: int) -> "subprocess.Popen[bytes]":
    """Begin in a process of its own; one thread, so that sums have one order."""
    return subprocess.Popen(
        command(model, out, steps),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )


def lines(out: Path) -> int:
    """Count the steps that a run has written."""
    path = out / "history.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main() -> int:
    """Compare one quiet run with one that is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with TemporaryDirectory() as folder:
        model, quiet, killed = (Path(folder) / name for name in ("model", "quiet", "killed"))
        new_model(miniature_config(width=32, layers=3, vision_layers=2), seed=0).save_pretrained(
            model
        )
        make_processor(size=SIZE, patch=PATCH).save_pretrained(model)
        assert start(model, quiet, options.steps).wait() == 0
        turns = lines(quiet)
        for kill in range(1, options.kills + 1):
            process = start(model, killed, options.steps)
            # history is written with the checkpoints; a kill falls anywhere after one
            while lines(killed) < kill * turns // (options.kills + 1) and process.poll() is None:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
            if process.wait() != -signal.SIGKILL:
                print(f"it ended before kill {kill}; begin again with more --steps")
                return 1
            print(f"kill {kill}: {lines(killed)} of {turns} steps were saved", flush=True)
        assert start(model, killed, options.steps).wait() == 0
        different = [x for x in FILES if (quiet / x).read_bytes() != (killed / x).read_bytes()]
    print(f"different after {options.kills} kills: {', '.join(different) or 'nothing'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
