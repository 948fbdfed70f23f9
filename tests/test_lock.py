"""One run at a time writes to a folder: a second one is refused, and changes nothing."""

import subprocess
import sys

import pytest

import eos
from eos import ConfigError, cli
from eos.data.settings import WorldData
from eos.runs import lock
from eos.runs.lock import LOCK, locked

HOLD = """
import sys, time
from pathlib import Path
from eos.runs.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
WORLD = WorldData(families=("digit",), size=8)
FEW = {"method": "random", "passes": 1, "batch": 2, "validation": {"samples": 2}, "data": WORLD}


def search(sibling, out):
    eos.search(eos.load_backbone(sibling), WORLD, eos.SearchConfig(**FEW), out=out)


def descend(sibling, out):
    few = {**FEW, "method": "paper", "steps": 1}
    eos.search(eos.load_backbone(sibling), WORLD, eos.SearchConfig(**few), out=out)


def evaluate(sibling, out):
    eos.evaluate(sibling, ["fastv@16"], out=out, task="mini:digit", limit=2)


def command(*words):
    """Run a command line; raise what it says if it fails."""

    def run(sibling, out, capsys):
        plan = out.parent / "plan.json"
        eos.Plan.preset("even", budget=64, num_layers=3).save(plan)
        given = [word.format(sibling=sibling, plan=plan) for word in words]
        if cli.main([*given, "--out", str(out), "--quiet"]):
            raise ConfigError(capsys.readouterr().err)

    return run


GIVEN = ("--search", "{plan}", "--budgets", "64", "--limit", "2", "--task", "mini:digit")
COMMANDS = {
    "fidelity": command(
        *("fidelity", "--backbone", "{sibling}", "--samples", "4", "--batch-size", "2"),
        *("--fractions", "0.5", "--method", "measured"),
    ),
    "profile": command(
        *("profile", "backbone={sibling}", "explore.profile_samples=2", "batch=2"),
        *("validation.samples=2", "explore.confirm_samples=2", "scorers=[diversity]"),
    ),
    "ablate": command("ablate", "placement", "backbone={sibling}", "--jobs", "1", *GIVEN),
}


@pytest.fixture
def holder(tmp_path):
    """Let another process hold a folder until the test ends."""
    folder = tmp_path / "held"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield folder, process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("run", [search, descend, evaluate])
def test_a_folder_in_use_is_refused_until_its_process_is_killed(run, holder, sibling, monkeypatch):
    monkeypatch.setattr(lock, "WAIT", 0.1)
    folder, process = holder
    with pytest.raises(ConfigError, match=r"no other process writes to.* in use; wait"):
        run(sibling, folder)
    assert [path.name for path in folder.iterdir()] == [LOCK]
    run(sibling, folder.with_name("other"))  # the control: another folder is free
    process.kill()
    process.wait()
    run(sibling, folder)  # a kill leaves the file, but nobody holds it
    assert not (folder / LOCK).exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_refuse_it_too(name, holder, sibling, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(lock, "WAIT", 0.1)
    with pytest.raises(ConfigError, match="no other process writes to"):
        COMMANDS[name](sibling, holder[0], capsys)
    assert [path.name for path in holder[0].iterdir()] == [LOCK]
    COMMANDS[name](sibling, tmp_path / "other", capsys)


def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path):
    folder = tmp_path / "a" / "b"
    with locked(folder):
        assert folder.is_dir()
    assert not folder.exists()
    with locked(folder):
        (folder / "result.json").write_text("{}")
    assert [path.name for path in folder.iterdir()] == ["result.json"]


def test_processes_of_one_run_do_not_lock_each_other_out(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "WAIT", 0.1)
    with locked(tmp_path), locked(tmp_path, main=False):
        pass
    with locked(tmp_path), pytest.raises(ConfigError), locked(tmp_path):
        pass  # the control: a second writer is


def test_a_path_that_cannot_be_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write to .*file"), locked(tmp_path / "file"):
        pass
