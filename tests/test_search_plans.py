"""The default search and its rivals, from a profile to a plan, on a model of random weights."""

import json
import os
import signal
import subprocess
import sys
import time
from random import Random

import pytest
import torch

import eos
from eos import ConfigError, Plan, SearchConfig, Theta, cli
from eos.data.settings import WorldData
from eos.data.sources import open_source
from eos.searching.baselines import search_randomly
from eos.searching.curves import Profile
from eos.searching.moves import OPERATORS
from eos.searching.planner import budget_space, open_search, scorers_by_site
from eos.searching.refine import refined_steps, signal_to_noise
from eos.searching.search import search as find
from tests.test_search_cli import launched

WORLD = WorldData(families=("presence", "digit"), size=50)
FILES = ("theta.json", "plan.json", "plan-64.json", "plan-16.json", "profile.json")
SMALL = {"batch": 2, "steps": 3, "lr": 0.1, "save_every": 2, "answers": "last", "data": WORLD}
SMALL |= {"validation": {"samples": 4}, "budget": 64, "budgets": (64, 16), "warmup": 0.0}
SMALL |= {"scorers": ("diversity", "all-text", "dissimilarity")}
QUICK = {"profile_samples": 4, "paths": 2, "gradient_samples": 4, "confirm_samples": 2}


@pytest.fixture(scope="module")
def backbone(sibling):
    return eos.load_backbone(sibling)


def searched(backbone, out=None, watch=None, explore=None, **changes):
    config = SearchConfig(**{**SMALL, "explore": {**QUICK, **(explore or {})}, **changes})
    exam = WORLD.model_copy(update={"split": "validation"})
    return find(backbone, WORLD, config, validation=exam, out=out, watch=watch)


@pytest.fixture(scope="module")
def finished(backbone, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    return out, searched(backbone, out)


def test_a_search_leaves_plans_a_profile_and_what_it_measured(finished):
    out, answer = finished
    names = {path.name for path in out.iterdir()}
    folders = {"gradient-64", "gradient-16"}
    trials = {"trials.jsonl", "trials-64.jsonl", "trials-16.jsonl"}
    assert names == {*FILES, *folders, *trials, "config.yaml", "env.json"}
    assert {b: plan.expected.final_tokens for b, plan in answer.plans.items()} == {64: 64, 16: 16}
    assert answer.plan == answer.plans[64] == Plan.load(out / "plan.json")
    assert Plan.from_theta(Theta.load(out / "theta.json"), every_layer=True).schedule == (
        answer.plan.schedule
    )
    for name in (*FILES, "config.yaml"):
        assert cli.main(["validate", str(out / name)]) == 0


def test_constraints_are_met_exactly(finished):
    _, answer = finished
    for budget, plan in answer.plans.items():
        sizes = {"visual_tokens": 576, "num_layers": 3, "dims": plan.dims, "text_tokens": 64}
        limit = Plan.preset("sparsevlm-v2", budget=budget, **sizes).expected.flops_ratio
        assert plan.expected.flops_ratio <= limit
        assert len(plan.steps) <= 3
    # the control: the same layers without a limit would cost more
    first = answer.plan.steps[0].model_copy(update={"keep": 575})
    looser = answer.plan.model_copy(update={"steps": (first, *answer.plan.steps[1:])})
    assert looser.expected.flops_ratio > answer.plan.expected.flops_ratio


def test_every_stage_says_what_it_found_and_what_it_cost(finished):
    _, answer = finished
    for stages in answer.stages.values():
        names = [stage.name for stage in stages]
        assert names[0] == "paths"
        assert names[-2:] == ["gradient", "confirmed"]
        spent = [stage.passes for stage in stages]
        assert spent == sorted(spent)
        assert spent[0] > 0
    told = answer.plan.provenance["search"]
    assert told["method"] == "eos"
    assert [stage["name"] for stage in told["stages"]] == [s.name for s in answer.stages[64]]


def test_gradients_move_operators_and_nothing_else(finished):
    out, answer = finished
    before, after = (
        next(s for s in answer.stages[64][::-1] if s.name == n) for n in ("paths", "gradient")
    )
    lines = [
        json.loads(x) for x in (out / "gradient-64" / "history.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert all(line["gradient_norm"] > 0 for line in lines)
    assert lines[0]["theta"]["gamma"] != lines[-1]["theta"]["gamma"]
    assert {type(step.operator) for step in after.steps} == {type(OPERATORS[0])}
    assert all(step.operator not in OPERATORS for step in after.steps)
    assert before.steps[-1].keep == after.steps[-1].keep == 64


def test_the_mean_of_the_last_half_is_what_a_descent_gives():
    step = eos.Step(layer=0, keep=2)
    plan = Plan(visual_tokens=4, num_layers=1, steps=(step,))
    flat = {"tau": [1.0], "theta": [0.5], "rho": [0.02], "nu": [0.02]}  # ρ, ν where they start
    path = [{"gamma": [g], **flat} for g in (0.9, 0.8, 0.1, 0.3)]
    (found,) = refined_steps(path, plan)
    assert found.operator.gamma == pytest.approx(0.2)
    assert found.operator.theta == 0.5
    assert found.operator.rho == found.operator.nu == 0.0  # exactly what they were


def test_signal_to_noise_is_that_of_the_mean():
    torch.manual_seed(0)
    truth, spread = torch.tensor([0.3, -0.4], dtype=torch.float64), 0.5
    ratios = [
        signal_to_noise(list(truth + spread * torch.randn(8, 2, dtype=torch.float64)))
        for _ in range(2000)
    ]
    # squared length 0.25 over a noise of 2 * 0.25 / 8; a little more, for noise is in the divisor
    assert 3.5 < sum(ratios) / len(ratios) < 5.5
    assert signal_to_noise([truth]) == 0.0  # one batch says nothing of its noise
    assert signal_to_noise([truth, -truth]) == 0.0


class CrashError(Exception):
    """Ends a run where it stands, as a kill would."""


@pytest.mark.parametrize("stage", ["profile", "eos, 16 tokens", "gradient, 16 tokens"])
def test_interrupted_anywhere_it_ends_the_same(backbone, finished, tmp_path, stage):
    def crash(status):
        if status.start == stage:
            raise CrashError

    with pytest.raises(CrashError):
        searched(backbone, tmp_path / "run", watch=crash)
    assert not (tmp_path / "run" / "plan.json").exists()
    searched(backbone, tmp_path / "run")
    whole, _ = finished
    for name in FILES:
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes(), name


def test_another_search_is_not_continued(backbone, finished):
    out, _ = finished
    with pytest.raises(ConfigError, match="seed"):
        searched(backbone, out, seed=7)


def test_a_profile_serves_other_searches(backbone, finished, tmp_path):
    out, answer = finished
    known = {"profile": str(out / "profile.json")}
    again = searched(backbone, tmp_path / "again", explore=known)
    assert again.plans == answer.plans
    assert not (tmp_path / "again" / "profile.json").exists()
    # what the profile took is part of what the search took
    spent = answer.stages[64][0].passes
    assert spent <= again.stages[64][0].passes <= spent + 4  # the full model answers once more
    other = Profile.load(out / "profile.json").model_copy(update={"fingerprint": "another"})
    other.save(tmp_path / "other.json")
    with pytest.raises(ConfigError, match="profile of this backbone"):
        searched(backbone, tmp_path / "no", explore={"profile": str(tmp_path / "other.json")})


def test_the_papers_space_is_what_is_left_without_scorers_operators_and_input(backbone):
    paper = {"scorers": ("text-raters",), "operators": False, "input_site": False, "mass": False}
    plan = searched(backbone, **paper).plan
    assert {step.score for step in plan.steps} == {"text-raters"}
    assert {step.operator for step in plan.steps} == {OPERATORS[0]}
    assert all(step.layer >= 0 for step in plan.steps)


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_rivals_spend_what_they_are_given(backbone, tmp_path, method):
    rival = {"method": method, "passes": 12.0, "budgets": None}
    first = searched(backbone, tmp_path / "a", **rival)
    stages = first.stages[64]
    assert 12 <= stages[-1].passes < 16
    values = [stage.disagreement.mean for stage in stages]
    assert values == sorted(values, reverse=True)
    assert searched(backbone, tmp_path / "b", **rival).plan == first.plan
    assert searched(backbone, tmp_path / "c", **rival, seed=5).stages != first.stages
    longer = searched(backbone, tmp_path / "d", **{**rival, "passes": 24.0}).stages[64]
    assert longer[-1].tried > stages[-1].tried
    assert longer[-1].disagreement.mean <= values[-1]


def test_random_search_finds_the_best_of_all_its_plans(backbone, tmp_path):
    """What cannot win is measured in part only, and counts as measured in full."""
    options = {"processor": None, "folder": tmp_path, "watch": None}
    config = SearchConfig(**{**SMALL, "method": "random", "passes": 30.0, "batch": 1})
    opened = open_search(backbone, (open_source(WORLD), open_source(WORLD)), config, **options)
    space = budget_space(opened.config, backbone, 64, visual_tokens=opened.visual_tokens)
    judge, pieces = opened.judge, opened.pieces
    found = search_randomly(judge, space, pieces=pieces, passes=30.0, seed=3)
    tried = found.stages[-1].tried
    measured = len((tmp_path / "trials.jsonl").read_text().splitlines()) - 1
    assert tried < measured < tried * pieces  # the control: some were not measured in full
    spent, chance = judge.passes, Random("eos 3 random 64")
    plans = [space.random_plan(chance) for _ in range(tried)]
    means = [float(judge.disagreement([plan], range(pieces)).mean()) for plan in plans]
    assert found.best.plan == plans[means.index(min(means))]
    assert judge.passes == spent


def test_rivals_go_on_after_a_kill(sibling, tmp_path):
    out = tmp_path / "run"
    settings = [
        f"backbone={sibling}",
        "method=random",
        "passes=40",
        "batch=2",
        "validation.samples=4",
    ]
    arguments = ["search", *settings, "data.families=[presence, digit]", "--quiet", "--out"]
    command = [sys.executable, "-m", "eos", *arguments, str(out)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if (out / "trials.jsonl").exists() and (out / "trials.jsonl").stat().st_size > 800:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    assert cli.main([*arguments, str(out)]) == 0
    assert cli.main([*arguments, str(tmp_path / "whole")]) == 0
    for name in ("plan.json", "theta.json", "trials.jsonl"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize(("flag", "held"), [("--multi_gpu", "1.00"), ("--use_fsdp", "0.50")])
def test_two_processes_find_what_one_finds(sibling, tmp_path, flag, held):
    settings = [f"backbone={sibling}", "batch=4", "validation.samples=8", "steps=2", "budget=16"]
    settings += ["scorers=[diversity, dissimilarity]", "data.families=[presence, digit]"]
    settings += [f"explore.{key}={value}" for key, value in QUICK.items()]
    arguments = ["search", *settings, "--quiet", "--json", "--out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = subprocess.run(
        [sys.executable, *launched("tests.witness", flag), *arguments, str(tmp_path / "two")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stdout
    assert told.stdout.count(f"of 2 processes, holds {held} of the layers") == 2
    assert cli.main([*arguments, str(tmp_path / "one")]) == 0
    two, one = (Plan.load(tmp_path / name / "plan.json") for name in ("two", "one"))
    assert [(s.layer, s.keep, s.score) for s in two.steps] == [
        (s.layer, s.keep, s.score) for s in one.steps
    ]
    for a, b in zip(two.steps, one.steps, strict=True):
        assert a.operator.omega == pytest.approx(b.operator.omega, abs=1e-3)


def test_every_family_has_scorers_at_every_site_and_the_input():
    found = scorers_by_site(4, SearchConfig())
    assert sorted(found) == [-1, 0, 1, 2]
    assert "random" not in found[0]
    assert "cls-attention" not in found[0]  # needs a class token, which few towers have
    assert set(found[-1]) == {"next-last-query", "diversity", "dissimilarity"}
    assert -1 not in scorers_by_site(4, SearchConfig(input_site=False))
    assert -1 not in scorers_by_site(4, SearchConfig(method="paper"))
    with pytest.raises(ConfigError, match="before the decoder"):
        scorers_by_site(4, SearchConfig(input_site=True, scorers=("all-text",)))


def test_the_command_shows_stages_and_profiles(sibling, tmp_path, capsys):
    settings = [f"backbone={sibling}", "batch=2", "validation.samples=4", "steps=1", "budget=16"]
    settings += ["scorers=[diversity]", "data.families=[presence]"]
    settings += [f"explore.{key}={value}" for key, value in QUICK.items()]
    assert cli.main(["profile", *settings, "--out", str(tmp_path / "p")]) == 0
    captured = capsys.readouterr()
    assert "best scorer" in captured.out
    assert (tmp_path / "p" / "profile.png").stat().st_size > 1000
    assert cli.main(["profile", "method=random", "--out", str(tmp_path / "q")]) == 1
    known = f"explore.profile={tmp_path / 'p' / 'profile.json'}"
    assert cli.main(["search", *settings, known, "--out", str(tmp_path / "s")]) == 0
    captured = capsys.readouterr()
    for words in ("stage by stage", "confirmed", "plan-16.json"):
        assert words in captured.out
    assert cli.main(["plan", str(tmp_path / "s"), "--budget", "8"]) == 0
    assert "-> 8 final" in capsys.readouterr().out
