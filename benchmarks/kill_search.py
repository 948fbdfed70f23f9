"""Kill a search at random moments, again and again, and compare its end with that of a quiet one.

    python benchmarks/kill_search.py --kills 10

Each kill ends a run of its own, which then goes on to its end; one more run meets all of them in a
row. Makes a small random sibling of the miniature, so that it needs nothing; every kill is a
SIGKILL of a real process. Ends with exit code 1 if any file of any result differs.
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
    return [
        sys.executable,
        "-m",
        "eos",
        "search",
        "paper-miniature",
        *settings,
        "--quiet",
        "--out",
        str(out),
    ]


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


def different(quiet: Path, other: Path) -> str:
    """Name the files in which two runs differ."""
    found = [name for name in FILES if (quiet / name).read_bytes() != (other / name).read_bytes()]
    return ", ".join(found)


def killed_at(model: Path, out: Path, steps: int, *, after: int, wait: float) -> bool:
    """Run until ``after`` steps are saved and a moment longer, then kill; whether it still ran."""
    process = start(model, out, steps)
    # history is written with the checkpoints; a kill falls anywhere after one
    while lines(out) < after and process.poll() is None:
        time.sleep(0.005)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def main() -> int:
    """Compare one quiet run with those that are killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with TemporaryDirectory() as folder:
        model, quiet, row = (Path(folder) / name for name in ("model", "quiet", "row"))
        new_model(miniature_config(width=32, layers=3, vision_layers=2), seed=0).save_pretrained(
            model
        )
        make_processor(size=SIZE, patch=PATCH).save_pretrained(model)
        assert start(model, quiet, options.steps).wait() == 0
        turns, bad = lines(quiet), 0
        for kill in range(1, options.kills + 1):
            moment = {"after": kill * turns // (options.kills + 1), "wait": chance.uniform(0, 0.2)}
            if not killed_at(model, row, options.steps, **moment):
                print(f"it ended before kill {kill}; begin again with more --steps")
                return 1
            once = Path(folder) / f"once-{kill}"
            moment = {"after": chance.randrange(turns * 4 // 5), "wait": chance.uniform(0, 0.2)}
            alive = killed_at(model, once, options.steps, **moment)
            saved = lines(once)
            assert start(model, once, options.steps).wait() == 0
            found = different(quiet, once)
            bad += bool(found) or not alive
            told = f"kill {kill} of a run of its own, {saved} of {turns} steps saved"
            print(f"{told}: {found or 'the same'}{'' if alive else ', too late'}", flush=True)
        assert start(model, row, options.steps).wait() == 0
        found = different(quiet, row)
        print(f"{options.kills} kills in a row: {found or 'the same'}")
    return 1 if bad or found else 0


if __name__ == "__main__":
    sys.exit(main())
