"""`eos search` as a person, a launcher or a scheduler meets it."""

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import pytest

import eos
from eos import cli
from eos.searching.folder import CHECKPOINT
from tests.launching import begin, launched

SMALL = ["steps=6", "batch=2", "validation.samples=2", "starts=null", "objective.align_layers=null"]
SMALL += ["data.families=[presence, digit]", "save_every=2", "micro_batch=null"]


def command(sibling, out, *more):
    return ["search", "paper-miniature", f"backbone={sibling}", *SMALL, *more, "--out", str(out)]


@pytest.fixture(scope="module")
def finished(sibling, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert cli.main([*command(sibling, out), "--quiet"]) == 0
    return out


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_regimes_the_costs_and_the_gap_are_printed(sibling, finished, capsys):
    assert cli.main(command(sibling, finished)) == 0
    captured = capsys.readouterr()
    for words in ("regime", "64 final tokens", "discretisation gap", "plan.json", "FLOPs x"):
        assert words in captured.out
    assert cli.main([*command(sibling, finished), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"]["expected"]["final_tokens"] == 64
    assert found["gaps"][0]["samples"] == 2
    assert cli.main(["validate", str(finished / "plan.json")]) == 0
    assert cli.main(["plan", str(finished), "--budget", "16"]) == 0
    assert "-> 16 final" in capsys.readouterr().out


def test_mistakes_exit_with_1_and_touch_nothing(sibling, tmp_path, capsys):
    assert cli.main([*command(sibling, tmp_path / "out"), "stepps=3"]) == 1
    assert "did you mean 'steps'?" in capsys.readouterr().err
    assert cli.main([*command(sibling, tmp_path / "out"), "lr=fast", "batch=0"]) == 1
    assert "2 problems" in capsys.readouterr().err
    assert cli.main(["search", "minature", "--out", str(tmp_path / "out")]) == 1
    assert "did you mean 'miniature'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_search_is_refused(sibling, finished, capsys):
    assert cli.main([*command(sibling, finished), "seed=1"]) == 1
    assert "expected seed 42, found 1" in capsys.readouterr().err


def test_configurations_are_listed(capsys):
    assert cli.main(["ls", "configs", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["configs"]) == {
        "miniature",
        "paper-miniature",
        "llava-1.5-7b",
        "paper-llava-1.5-7b",
    }


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from eos.cli import main; assert main(['search', '--help']) == 0; "
        "heavy = {'torch', 'transformers', 'accelerate'} & set(sys.modules); assert not heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_killed_twice_it_ends_with_the_same_bytes(sibling, finished, tmp_path):
    """A real SIGKILL, whenever it comes; `benchmarks/kill_search.py` does it ten times."""
    out, chance, ends = tmp_path / "run", random.Random(0), []
    for least in (1, 3):
        process = begin(command(sibling, out, "--quiet"))
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if (out / "history.jsonl").exists() and len(lines_so_far(out)) >= least:
                time.sleep(chance.random() / 10)
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        process.communicate()
        ends.append(process.returncode)
    assert ends == [-signal.SIGKILL] * 2
    assert not (out / "plan.json").exists()
    assert cli.main([*command(sibling, out), "--quiet"]) == 0
    for name in ("theta.json", "history.jsonl", "plan.json", CHECKPOINT):
        assert (out / name).read_bytes() == (finished / name).read_bytes(), name
    assert [line["turn"] for line in lines(out / "history.jsonl")] == list(range(6))


def lines_so_far(out):
    return (out / "history.jsonl").read_bytes().split(b"\n")[:-1]


def test_control_c_in_a_terminal(sibling, tmp_path, capsys):
    out = tmp_path / "run"

    def interrupt():
        deadline = time.monotonic() + 60
        while not (out / CHECKPOINT).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    impatient = threading.Thread(target=interrupt)
    impatient.start()
    assert cli.main(command(sibling, out, "steps=400")) == 130
    impatient.join()
    assert "Rerun to resume" in capsys.readouterr().err
    assert eos.Theta.load(out / "theta.json")


def assert_same_history(out, alone):
    shared, alone = lines(out / "history.jsonl"), lines(alone / "history.jsonl")
    assert [line["turn"] for line in shared] == [line["turn"] for line in alone]
    for one, other in zip(alone, shared, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-5)
        for group, values in one["theta"].items():
            assert other["theta"][group] == pytest.approx(values, abs=1e-5)
    # the control: a process that learnt from its own half only would end elsewhere
    first, last = alone[0]["theta"], alone[-1]["theta"]
    assert any(abs(a - b) > 1e-3 for g in first for a, b in zip(first[g], last[g], strict=True))


def test_two_processes_are_one(sibling, finished, tmp_path):
    out = tmp_path / "run"
    process = begin(command(sibling, out, "--json"), launched("tests.witness", "--multi_gpu"))
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    # one answer: in it, in its plan's provenance, and in that of the plan by budget
    assert told.count('"start": "uniform"') == 3
    assert told.count("of 2 processes, holds 1.00 of the layers") == 2
    assert_same_history(out, finished)


@pytest.mark.parametrize(
    "more", [("trackers=[tensorboard]",), ("recompute=true",), ("objective.ce_weight=0",)]
)
def test_two_halves_of_a_backbone_are_one(sibling, tmp_path, more):
    whole, out = tmp_path / "whole", tmp_path / "halves"
    assert cli.main([*command(sibling, whole, *more), "--quiet"]) == 0
    process = begin(command(sibling, out, *more), launched("tests.witness", "--use_fsdp"))
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert told.count("of 2 processes, holds 0.50 of the layers") == 2
    assert_same_history(out, whole)
    assert len(tracked(out).get("loss/total", ())) == (6 if "trackers" in more[0] else 0)


def tracked(folder):
    """The numbers in TensorBoard's event files: records of a length, its checksum, data, theirs."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for path in folder.rglob("events.out.tfevents.*"):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_curves_go_to_tensorboard(sibling, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    process = begin(command(sibling, out, "trackers=[tensorboard]"))
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    history, curves = lines(out / "history.jsonl"), tracked(out)
    for name in ("total", "cross_entropy", "align", "budget"):
        expected = [(line["turn"], pytest.approx(line["loss"][name], rel=1e-6)) for line in history]
        assert curves[f"loss/{name}"] == expected
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_curves_go_to_wandb(sibling, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    out = tmp_path / "run"
    process = begin(command(sibling, out, "trackers=[wandb]"))
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    (kept,) = out.rglob("*.wandb")
    assert b"cross_entropy" in kept.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed")
def test_a_tracker_that_is_not_installed_is_named(sibling, tmp_path, capsys):
    assert cli.main(command(sibling, tmp_path / "run", "trackers=[wandb]")) == 1
    assert "trackers that are installed, found none for wandb" in capsys.readouterr().err


def test_trackers_leave_a_folder_alone_that_is_another_runs(sibling, finished, tmp_path, capsys):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    assert cli.main(command(sibling, out, "seed=1", "trackers=[tensorboard]")) == 1
    assert "seed" in capsys.readouterr().err
    assert not tracked(out)
