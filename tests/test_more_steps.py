"""Complaint 12: a finished run of the paper's search goes on if its steps are raised."""

import json
import shutil

import pytest

import eos
from eos import ConfigError, Plan, Theta
from eos.searching import opening
from eos.searching.folder import CHECKPOINT, read_checkpoint
from eos.searching.schedule import learning_rate, steps_of
from tests.test_loop import CrashError, crash_at, history, same, searched, settings


@pytest.fixture(scope="module")
def backbone(sibling):
    return eos.load_backbone(sibling)


@pytest.fixture(scope="module")
def finished(backbone, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    return out, searched(backbone, out)


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "run")


def test_12_more_steps_go_on_from_the_last(backbone, run, finished):
    before = (run / "plan.json").read_bytes()
    answer = searched(backbone, run, steps=8)
    lines = history(run)
    assert lines[:5] == history(finished[0])
    assert [line["step"] for line in lines] == list(range(8))
    longer = settings(steps=8)
    assert [line["lr"] for line in lines[5:]] == [learning_rate(longer, n) for n in (5, 6, 7)]
    assert (run / "plan.after-5-steps.json").read_bytes() == before
    assert Plan.load(run / "plan.json") == answer.plan
    assert answer.plan.provenance["search"]["steps"] == 8
    assert eos.SearchConfig.load(run / "config.yaml").steps == 8
    assert answer.theta.gate_temperature == 4.0


def test_12_counts_stay_where_they_were(backbone, run, finished, monkeypatch):
    ended = finished[1].theta.value("c").tolist()
    monkeypatch.setattr(opening, "lengthen", lambda *given, **named: None)
    control = shutil.copytree(run, run.parent / "control")
    searched(backbone, control, steps=40)
    assert history(control)[5]["theta"]["c"] != pytest.approx(ended, abs=1e-3)
    monkeypatch.undo()
    searched(backbone, run, steps=40)
    begun = history(run)[5]
    assert begun["theta"]["c"] == pytest.approx(ended, abs=1e-6)
    assert begun["gate_temperature"] < 4.0


def test_12_raised_and_interrupted_ends_as_raised(backbone, run):
    torn = shutil.copytree(run, run.parent / "torn")
    searched(backbone, run, steps=9)
    with pytest.raises(CrashError):
        searched(backbone, torn, steps=9, watch=crash_at(8))
    assert not (torn / "plan.json").exists()
    searched(backbone, torn, steps=9)
    assert same(torn, run)
    searched(backbone, run, steps=9)  # finished: nothing is left to do
    assert same(torn, run)


def test_12_fewer_steps_are_refused(backbone, run, finished):
    with pytest.raises(ConfigError, match="expected steps=5 or more, found 4"):
        searched(backbone, run, steps=4)
    with pytest.raises(ConfigError, match="2 problems"):
        searched(backbone, run, steps=4, seed=1)
    with pytest.raises(ConfigError, match="expected seed 42, found 1"):
        searched(backbone, run, steps=8, seed=1)
    assert same(run, finished[0])
    assert (run / "plan.json").exists()


def test_12_a_race_is_not_run_again(backbone, tmp_path):
    race = {"starts": ["uniform", "prune"], "race": 0.4}  # 2 of 5 steps, 4 of 10
    out = tmp_path / "race"
    searched(backbone, out, **race)
    for steps in (10, 15):
        answer = searched(backbone, out, steps=steps, **race)
        lines = history(out)
        assert [line["step"] for line in lines] == [0, 1, 0, 1, *range(2, steps)]
        assert {line["start"] for line in lines[4:]} == {answer.start}
    assert eos.SearchConfig.load(out / "config.yaml").race == 0.4
    _, note = read_checkpoint(out / CHECKPOINT)
    assert (note["steps"], note["race_steps"]) == (15, 2)
    assert json.loads((out / "env.json").read_text())
    assert repr(Theta.load(out / "theta.json")) == repr(answer.theta)


def test_12_steps_of_each_start_are_counted():
    config = settings(starts=["uniform", "prune", "merge"], race=0.4)
    counted = [[steps_of(config, start, done=n, winner=1) for start in range(3)] for n in range(10)]
    assert counted[3] == [2, 1, 0]
    assert counted[6] == [2, 2, 2]
    assert counted[9] == [2, 5, 2]
    assert steps_of(settings(), 0, done=4, winner=0) == 4
