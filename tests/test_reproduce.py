"""`eos reproduce` and `eos ablate`: on a model of random weights, killed, resumed, in parallel."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eos import Plan
from eos.cli import main
from eos.commands.programme import run_programme
from eos.commands.validate import validate_file
from eos.evaluation.reproduction import Examples, Programme
from eos.evaluation.study import Study
from eos.programme.catalogue import PRESETS_FIRST, STUDIES
from eos.programme.scope import Scope

TINY = ("steps=1", "batch=2", "validation.samples=2", "scorers=[diversity,all-text]")
TINY += ("explore.profile_samples=2", "explore.paths=0", "explore.confirm_samples=0")
TINY += ("explore.moves=0", "explore.gradient_samples=2")
DESCENT = ("steps=1", "batch=2", "micro_batch=2", "validation.samples=2")
DESCENT += ("objective.align_layers=[1]",)
STUDY_NAMES = [name for name in STUDIES if name != PRESETS_FIRST]


def arguments(sibling, out, *more):
    """A command line of a quick programme in seconds."""
    given = [
        f"backbone={sibling}",
        *TINY,
        "--out",
        str(out),
        "--limit",
        "2",
        "--task",
        "mini:digit",
    ]
    given += ["--quick", "--quiet", "--preset", "fastv", "--preset", "prumerge+-original"]
    for change in DESCENT:
        given += ["--descent", change]
    return ["reproduce", *given, *more]


def contents(out):
    """What the report reads, and the plans; how long a piece took is not the same twice.

    Nor is the state of the working tree, where commits are made while the tests run.
    """
    paths = [*out.glob("*.json"), *out.glob("studies/*.json"), *out.glob("plans/*.json")]
    found = {path.relative_to(out): path.read_text(encoding="utf-8") for path in paths}
    found = {path: re.sub(r'"git": \{[^}]*\}', '"git": null', x) for path, x in found.items()}
    programme = json.loads(found[Path("programme.json")])
    for piece in programme["pieces"]:
        piece["seconds"] = piece["answers"] = 0  # of a killed piece, those since its last start
    found[Path("programme.json")] = json.dumps(programme)
    return found


@pytest.fixture(scope="module")
def quiet(sibling, tmp_path_factory):
    """Run the quick programme in this process, undisturbed."""
    out = tmp_path_factory.mktemp("quiet")
    assert main(arguments(sibling, out, "--jobs", "1")) == 0
    return out


@pytest.fixture(scope="module")
def whole(sibling, tmp_path_factory):
    """Run every study on few questions."""
    out = tmp_path_factory.mktemp("whole")
    scope = Scope(
        changes=(f"backbone={sibling}", *TINY),
        descent=DESCENT,
        budgets=(96, 64, 16),
        sweep=(16,),
        limit=2,
        seeds=(1, 2),
        task="mini:digit",
        presets=("fastv", "sparsevlm-v2"),
    )
    assert run_programme(scope, out, jobs=1, quiet=True)
    return out, scope


def test_every_study_and_file_is_made_and_valid(whole):
    out, _ = whole
    files = [*out.glob("*.json"), *out.glob("studies/*.json")]
    kinds = {path.stem: validate_file(path) for path in files}
    assert {name for name, kind in kinds.items() if kind == "eos.study/1"} == set(STUDY_NAMES)
    others = ("programme", "trajectory", "examples", "verify", "profile")
    assert {kinds[name] for name in others} == {f"eos.{name}/1" for name in others}
    for name in STUDY_NAMES:
        study = Study.load(out / "studies" / f"{name}.json")
        assert len(study.rows) > 2
        assert {row.method for row in study.rows} > {"full"}
        assert all(row.factors for row in study.rows if row.name != "full")
    shown = Examples.load(out / "examples.json")
    assert shown.budgets == (96, 64, 16)
    assert all(len(run.steps[-1].kept) == n for x in shown.items for n, run in x.plans.items())


def test_a_plan_of_several_studies_answers_once(whole):
    out, _ = whole
    answered = {}
    for path in out.glob("eval/*/*/predictions.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        answered = [(line["run"], line["family"], line["number"]) for line in lines]
        assert len(set(answered)) == len(answered)
    rows = [row for name in STUDY_NAMES for row in Study.load(out / f"studies/{name}.json").rows]
    assert len({run for run, _, _ in answered}) < len(rows)  # the control: some plans are shared
    pieces = Programme.load(out / "programme.json").pieces
    assert sum(piece.answers for piece in pieces) == len(answered)


def test_a_second_run_makes_nothing_and_a_changed_input_what_follows_from_it(whole):
    out, scope = whole
    before = {path: path.stat().st_mtime_ns for path in out.glob("pieces/**/*.json")}
    run_programme(scope, out, jobs=1, quiet=True)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    # the control: other questions are answered anew, by the same plans
    changed = scope.model_copy(update={"seed": 5})
    run_programme(changed, out, jobs=1, studies=["low"], quiet=True)
    again = {path for path in before if path.stat().st_mtime_ns != before[path]}
    assert {path.relative_to(out / "pieces").as_posix() for path in again} == {
        "answers/low/digit.json",
        "study/low.json",
    }
    assert Study.load(out / "studies" / "low.json").seed == 5
    assert len(Programme.load(out / "programme.json").pieces) == len(before)


def test_the_quick_programme_ends_with_the_main_table_and_a_report(sibling, quiet, capsys):
    assert main(arguments(sibling, quiet, "--jobs", "1")) == 0
    shown = capsys.readouterr().out
    study = Study.load(quiet / "studies" / "main.json")
    assert {row.cost.final_tokens for row in study.rows} == {576, 64, 65, 16, 17}
    text = (quiet / "report.md").read_text(encoding="utf-8")
    for row in study.rows:
        assert row.name in shown
        assert f"| `{row.name}` |" in text
    code = text.split("```python\n")[1].split("```")[0]
    assert (quiet / "plans" / "eos-1@64.json").as_posix() in code
    compile(code, "report", "exec")


def run_killed(command, out, *, pieces):
    """Start a programme in processes of its own, and kill it once it has made so many pieces."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "eos", *command], env=environment)
    while len(list(out.glob("pieces/**/*.json"))) < pieces and process.poll() is None:
        time.sleep(0.05)
    time.sleep(random.random())
    process.send_signal(signal.SIGKILL)
    return process.wait()


def test_killed_at_random_moments_and_run_again_gives_the_same_files(sibling, quiet, tmp_path):
    random.seed(0)
    codes = [
        run_killed(arguments(sibling, tmp_path, "--jobs", "2"), tmp_path, pieces=pieces)
        for pieces in (1, 4, 8)
    ]
    assert codes == [-signal.SIGKILL] * 3
    assert not (tmp_path / "programme.json").exists()  # the control: it was not done
    assert main(arguments(sibling, tmp_path, "--jobs", "1")) == 0
    assert contents(tmp_path) == contents(quiet)


def test_launched_processes_share_the_pieces(sibling, quiet, tmp_path):
    launcher = ["-m", "accelerate.commands.launch", "--num_processes", "2", "--num_machines", "1"]
    launcher += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    launcher += ["--multi_gpu", "-m", "eos"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, *arguments(sibling, tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("averages over families") == 1  # one of them shows the table
    assert contents(tmp_path) == contents(quiet)
    assert len(list(tmp_path.glob("logs/worker-*.log"))) == 2


def test_an_ablation_takes_plans_that_are_given(sibling, tmp_path, capsys):
    given = tmp_path / "plan.json"
    Plan.preset("even", budget=64, num_layers=3).save(given)
    command = ["ablate", "placement", f"backbone={sibling}", "--out", str(tmp_path / "out")]
    command += ["--search", str(given), "--budgets", "64,16", "--limit", "2"]
    command += ["--task", "mini:digit", "--quiet", "--jobs", "1", "--json"]
    assert main(command) == 0
    study = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "out" / "searches").exists()
    assert study["name"] == "placement"
    base = next(row for row in study["rows"] if row["name"] == "eos@16")
    layers = [step["layer"] for step in base["plan"]["steps"]]
    assert layers == [step.layer for step in Plan.load(given).steps]
    assert base["cost"]["final_tokens"] == 16


def test_a_dry_run_lists_the_pieces_and_makes_none(sibling, tmp_path, capsys):
    assert main(arguments(sibling, tmp_path, "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert "answers/main/digit" in shown
    assert "pieces to make, about" in shown
    assert not list(tmp_path.iterdir())


def test_a_failing_worker_is_named_with_its_piece(sibling, tmp_path, capsys):
    command = arguments(sibling, tmp_path, "explore.profile_samples=0", "--jobs", "2")
    assert main(command) == 1
    assert "profile_samples" in capsys.readouterr().err
    broken = tmp_path / "plan.json"
    broken.write_text("{}")
    assert main(arguments(sibling, tmp_path / "out", "--search", str(broken))) == 1
    assert "plan.json" in capsys.readouterr().err
