"""What a search returns, and the plans that its folder gives afterwards: always the run's own."""

import json

import pytest

import eos
from eos import Plan, PlanError, Theta, cli
from eos.space.deployment import Deployment
from eos.space.searched import load_plan_of_run
from tests.test_loop import searched

# none of these is a default: a plan that falls back on one is noticed
OTHERS = {"score": "last-query", "layers": (0, 1)}
OTHERS |= {"objective": {"max_layers": 2, "text_tokens": 16}, "fix_layers": True}


@pytest.fixture(scope="module")
def run(sibling, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "others"
    return out, searched(eos.load_backbone(sibling), out, **OTHERS)


def check_own(plan, result):
    """Hold a plan to what the search was told, not to defaults."""
    assert [step.layer for step in plan.steps] == [0, 1]
    assert {step.score for step in plan.steps} == {"last-query"}
    assert plan.dims == result.plan.dims != Deployment().dims
    assert plan.text_tokens == 16
    assert plan.backbone == result.plan.backbone != "any"


def test_1_any_budget_is_the_runs_own_plan_rescaled(run, capsys):
    out, result = run
    assert cli.main(["plan", str(out), "--budget", "32", "--json"]) == 0
    found = Plan(**json.loads(capsys.readouterr().out))
    check_own(found, result)
    assert found == result.plan.rescaled(32) == result.plan_at(32)
    assert found.expected.final_tokens == 32
    assert result.plan_at(64) == result.plan == load_plan_of_run(out)
    with pytest.raises(PlanError, match="1 token or more, found 0"):
        result.plan_at(0)


def test_1_an_unfinished_run_has_the_same_plans_from_theta(run, tmp_path):
    out, result = run
    (tmp_path / "theta.json").write_text((out / "theta.json").read_text())
    found = load_plan_of_run(tmp_path, 32)
    check_own(found, result)
    assert found == result.plan_at(32)


def test_theta_says_what_its_plans_are(run):
    out, result = run
    read = Theta.load(out / "theta.json")
    assert read.deployment == result.theta.deployment != Deployment()
    assert Plan.from_theta(read, budget=64) == result.plan
    old = json.loads((out / "theta.json").read_text())
    del old["deployment"]  # files of earlier versions have none
    (out / "old.json").write_text(json.dumps(old))
    assert Theta.load(out / "old.json").deployment == Deployment()


def test_it_prints_every_plan(run):
    _, result = run
    assert str(result).endswith(f"budget 64\n{result.plan}")
    assert "last-query" in str(result)
