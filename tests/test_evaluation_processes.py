"""Evaluations that two processes share, killed and resumed: the bytes are those of one process."""

import os
import shutil
import signal
import time

import psutil
import pytest

from eos import ConfigError, cli
from eos.runs.processes import Processes
from tests.launching import begin, launched

FILES = ("results.json", "predictions.jsonl", "config.json")
OURS, OTHERS = "predictions.jsonl", "predictions-1.jsonl"


def command(sibling, out, *more):
    command = [
        "eval",
        "--backbone",
        str(sibling),
        "--out",
        str(out),
        "--tasks",
        "mini:string,listing",
    ]
    return [*command, "--plan", "fastv@16", "--limit", "30", "--batch-size", "2", "--json", *more]


@pytest.fixture(scope="module")
def alone(sibling, tmp_path_factory):
    out = tmp_path_factory.mktemp("evaluations") / "alone"
    assert cli.main(command(sibling, out, "--quiet")) == 0
    return out


def shared(arguments):
    """Run to the end in two processes and give what they print."""
    process = begin(arguments, launched("eos", "--multi_gpu"))
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    return told


@pytest.fixture(scope="module")
def killed(sibling, tmp_path_factory):
    """What is left when one of two processes is killed after both have answered something."""
    out = tmp_path_factory.mktemp("evaluations") / "killed"
    launcher = begin(command(sibling, out), launched("eos", "--multi_gpu"))
    deadline = time.monotonic() + 200
    while not all((out / name).exists() for name in (OURS, OTHERS)):
        assert launcher.poll() is None, launcher.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    victim = next(
        process
        for process in psutil.Process(launcher.pid).children(recursive=True)
        if process.environ().get("RANK") == "1"
    )
    os.kill(victim.pid, signal.SIGKILL)
    launcher.communicate(timeout=300)
    assert launcher.returncode != 0
    assert not (out / "results.json").exists()
    return out


def assert_same(out, alone):
    for name in FILES:
        assert (out / name).read_bytes() == (alone / name).read_bytes(), name
    assert not (out / OTHERS).exists()


def test_two_processes_are_one_to_the_last_byte(sibling, alone, tmp_path):
    told = shared(command(sibling, tmp_path / "out"))
    assert_same(tmp_path / "out", alone)
    assert told.count('"eos.results/1"') == 1  # only the first process prints
    assert told.count("saved") == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_and_resumed_by_any_number(sibling, alone, killed, tmp_path, processes):
    out = tmp_path / "out"
    shutil.copytree(killed, out)
    with (out / OTHERS).open("ab") as file:
        file.write(b'{"run":"full","id":"str')  # as if killed while writing
    before = (out / OURS).read_bytes() + (out / OTHERS).read_bytes()
    assert 0 < before.count(b"\n") < 4 * 30
    if processes == 1:
        assert cli.main(command(sibling, out, "--quiet")) == 0
    else:
        shared(command(sibling, out))
    assert_same(out, alone)


def test_what_the_other_process_wrote_counts(sibling, alone, killed, tmp_path):
    """The control: another answer in its part is another result."""
    out = tmp_path / "out"
    shutil.copytree(killed, out)
    part = (out / OTHERS).read_bytes()
    assert part.count(b'"score":0.0') > 0
    (out / OTHERS).write_bytes(part.replace(b'"score":0.0', b'"score":1.0', 1))
    assert cli.main(command(sibling, out, "--quiet")) == 0
    assert (out / "results.json").read_bytes() != (alone / "results.json").read_bytes()


def test_a_backbone_that_would_be_sharded_is_refused():
    processes = Processes()
    processes.refuse_sharding()
    processes.sharding = True
    with pytest.raises(ConfigError, match=r"expected --multi_gpu.*found --use_fsdp"):
        processes.refuse_sharding()
