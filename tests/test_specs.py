"""Plan specs: one grammar, for every command."""

import pytest

from eos import ConfigError, Plan, Theta
from eos.space.searched import load_searched
from eos.space.specs import Target, read_spec

SMALL = Target(visual_tokens=36, num_layers=4)
MADE = {"visual_tokens": 36, "num_layers": 4}


def test_presets_are_made_for_the_model_at_every_budget():
    found = read_spec("fastv@9,4", SMALL)
    assert found == [(f"fastv@{n}", Plan.preset("fastv", budget=n, **MADE)) for n in (9, 4)]
    assert read_spec("fastv", SMALL, budget=9) == found[:1]
    (name, mean), *_ = read_spec("fastv@20", SMALL, kind="mean")
    assert name == "fastv@20"
    assert mean.expected.mean_tokens <= 20 != mean.expected.final_tokens


def test_searched_plans_are_those_of_the_package():
    assert read_spec("eos-miniature@64", SMALL) == [
        ("eos-miniature@64", load_searched("eos-miniature", 64))
    ]


def test_files_and_folders_are_read_and_named(tmp_path):
    plan, theta = Plan.preset("fastv", budget=9, **MADE), Theta.start(4, visual_tokens=36, budget=9)
    run = tmp_path / "run"
    plan.save(tmp_path / "mine.json")
    plan.save(run / "plan.json")
    theta.save(run / "theta.json")
    assert read_spec(str(tmp_path / "mine.json"), SMALL) == [("mine", plan)]
    assert read_spec(str(run), SMALL) == read_spec(str(run / "plan.json"), SMALL) == [("run", plan)]
    assert read_spec(f"a@9={run}", SMALL) == [("a@9", plan)]
    assert read_spec(str(run / "plan.json"), SMALL, budget=4) == [("run", plan.rescaled(4))]
    made = Plan.from_theta(theta, budget=4)
    assert read_spec(str(run / "theta.json"), SMALL, budget=4) == [("run", made)]


@pytest.mark.parametrize(
    ("spec", "budget", "message"),
    [
        ("fastw@64", None, "found 'fastw', which is none of eos-miniature,"),
        ("runs/missing", None, "found 'runs/missing'"),
        ("fastv", None, "as in fastv@64; found 'fastv'"),
        ("fastv@9,", None, "found 'fastv@9,'"),
        ("fastv@9", 4, "expected one budget"),
        ("missing.json", None, "cannot read missing.json"),
        ("name=missing", None, "cannot read missing"),
    ],
)
def test_mistakes_are_explained(spec, budget, message):
    with pytest.raises(ConfigError, match=message):
        read_spec(spec, SMALL, budget=budget)
