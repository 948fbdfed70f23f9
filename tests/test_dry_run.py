"""Complaint 12: what a search will do, and its keys, are known only after it has run.

`python -m tests.test_dry_run` rewrites the keys of the configuration in the package.
"""

import json

import pytest

import eos
from eos import ConfigError, SearchConfig, cli
from eos.commands.keys import FILE, search_keys
from eos.data.settings import WorldData
from eos.searching.curves import Profile
from eos.searching.files import read_config, trace_values
from eos.searching.keys import config_keys, keys_file
from eos.searching.opening import pick_sources
from eos.searching.preview import preview_search
from eos.space.plan import Plan
from tests.test_search_plans import QUICK, SMALL, searched


@pytest.fixture(scope="module")
def backbone(sibling):
    return eos.load_backbone(sibling)


def previewed(backbone, **changes):
    config = SearchConfig(**{**SMALL, "explore": QUICK, **changes})
    return preview_search(backbone, pick_sources(config.data, None, config), config)


def origins(source=None, changes=()):
    return {value.key: (value.value, value.origin) for value in trace_values(source, changes)}


def test_12_every_value_has_an_origin(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("budget: 32\nobjective: {max_layers: 2}\nfix: {rho: 0}\nlr: 0.5\n")
    found = origins(file, ["lr=0.1", "objective.align_weight=0"])
    assert found["budget"] == (32, str(file))
    assert found["objective.max_layers"] == (2.0, str(file))
    assert found["fix.rho"] == (0.0, str(file))
    assert found["lr"] == (0.1, "command line")  # wins over the file
    assert found["objective.align_weight"] == (0.0, "command line")
    assert found["steps"] == (4000, "default")
    whole = origins(file, ["validation={samples: 7}"])
    assert whole["validation.samples"] == (7, "command line")
    assert whole["lr"] == (0.5, str(file))


def test_12_another_kind_of_data_does_not_come_from_the_file():
    found = origins(None, ["data.kind=llava", "data.file=a.json", "data.images=b"])
    data = {key: origin for key, (_, origin) in found.items() if key.startswith("data.")}
    assert data == dict.fromkeys(["data.kind", "data.file", "data.images"], "command line")
    assert origins()["data.split"] == ("train", "config miniature")


def test_12_a_dry_run_shows_limits_and_costs_and_writes_nothing(
    sibling, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    command = ["search", f"backbone={sibling}", "budgets=[64,16]", "batch=2", "--dry-run"]
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    for words in ("command line", "config miniature", "default", "FLOPs at most", "passes", "GiB"):
        assert words in shown
    assert cli.main([*command, "--json", "--out", str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == []
    assert found["config"]["batch"] == {"value": 2, "origin": "command line"}
    assert [own["budget"] for own in found["budgets"]] == [64, 16]
    assert found["seconds"] == pytest.approx(found["passes"] * found["pass_seconds"])
    assert found["seconds"] > 0
    assert found["process_bytes"] > found["weights_bytes"] > 0
    weights = eos.load_backbone(sibling).model.state_dict().values()
    assert found["weights_bytes"] >= sum({x.data_ptr(): x.nbytes for x in weights}.values())


def test_12_limits_are_those_of_the_search(backbone):
    found = previewed(backbone, objective={"max_layers": 2})
    for own in found.budgets:
        sizes = {"visual_tokens": 576, "num_layers": 3, "dims": backbone.dims, "text_tokens": 64}
        limit = Plan.preset("sparsevlm-v2", budget=own.budget, **sizes).expected.flops_ratio
        assert own.max_flops == limit
        assert own.max_layers == 2
        assert own.sites == (-1, 0, 1)
        assert own.start.expected.final_tokens == own.budget
        assert own.start.expected.flops_ratio <= limit
        assert len(own.start.steps) <= 2
    limit = Plan.preset("fastv", budget=128, **sizes).expected.flops_ratio
    named = previewed(backbone, objective={"max_flops": "fastv@128"})
    assert [own.max_flops for own in named.budgets] == [limit] * len(named.budgets)


def test_12_passes_are_about_those_of_the_search(backbone, tmp_path):
    found, answer = previewed(backbone), searched(backbone, tmp_path)
    profile = Profile.load(tmp_path / "profile.json")
    assert found.profile_passes == pytest.approx(profile.passes, abs=0.01)
    for own in found.budgets:
        spent = answer.stages[own.budget][-1].passes - profile.passes
        assert 0.7 * spent < own.passes < 2 * spent
    fewer = previewed(backbone, explore={**QUICK, "moves": 0, "gradient": False})
    assert fewer.passes < found.passes
    assert previewed(backbone, method="random", passes=7).passes == 14  # two budgets


def test_12_the_descent_is_previewed_too(backbone):
    found = previewed(backbone, method="paper", budgets=None, layers=(1,), steps=10)
    (own,) = found.budgets
    assert [step.layer for step in own.start.steps] == [1]
    assert own.sites == (0, 1, 2)
    longer = previewed(backbone, method="paper", budgets=None, layers=(1,), steps=20)
    exam = 2 * SMALL["validation"]["samples"]
    assert longer.passes - exam == pytest.approx(2 * (found.passes - exam))


def test_12_what_cannot_be_searched_is_refused_before(backbone):
    with pytest.raises(ConfigError, match="expected a FLOPs limit that 64 tokens can meet"):
        previewed(backbone, objective={"max_flops": 0.01}, input_site=False)
    with pytest.raises(ConfigError, match="expected a budget from 1 to 575, found 576"):
        previewed(backbone, budgets=(576,))


def test_12_help_lists_every_key(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.main(["search", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(entry["key"] in shown for entry in config_keys())
    assert "budget=64" in shown
    assert "--dry-run" in shown
    assert cli.main(["profile", "--help"]) == 0
    assert "objective.max_flops" not in capsys.readouterr().out  # the control


def test_12_keys_in_the_package_are_those_of_the_settings():
    assert FILE.read_text(encoding="utf-8") == keys_file()
    assert search_keys() == config_keys()


def test_12_every_key_exists_and_is_explained():
    entries = config_keys()
    assert all(entry["about"].strip(" .") for entry in entries), entries
    keys = {entry["key"] for entry in entries}
    assert set(origins()) - {"schema"} <= keys
    own = [x for x in entries if x["default"] and not x["key"].startswith("data.")]
    for entry in own:
        assert read_config(None, [f"{entry['key']}={entry['default']}"])
    assert len(own) > 50
    assert {"data.file", "data.files", "data.families"} <= keys
    assert {f"data.{name}" for name in WorldData.model_fields} <= keys


if __name__ == "__main__":
    FILE.write_text(keys_file(), encoding="utf-8")
