"""Start commands in processes of their own, one or several."""

import os
import subprocess
import sys


def begin(arguments, launcher=("-m", "eos")):
    """Start the command in a process of its own, with as many threads as the tests."""
    return subprocess.Popen(
        [sys.executable, *launcher, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def launched(module, *more):
    """Two processes, on CPUs where there is nothing else."""
    launcher = ["-m", "accelerate.commands.launch", "--num_processes", "2", "--num_machines", "1"]
    launcher += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    return [*launcher, *more, "-m", module]
