"""Configurations of a search, and what follows from a step alone."""

from itertools import pairwise
from math import log
from pathlib import Path

import pytest
import torch
import yaml

from eos import ConfigError, SearchConfig, Theta
from eos.engine.reference import align_layers
from eos.searching.files import changed, configs, purpose, read_config, write_config
from eos.searching.schedule import (
    AtBudget,
    Turn,
    drawn_budget,
    first_theta,
    learning_rate,
    set_temperatures,
    sharpen,
    total_turns,
    turn_at,
)
from eos.space.starts import default_layers
from eos.space.theta import GROUPS


@pytest.mark.parametrize("name", configs())
def test_every_packaged_configuration_is_read_and_written_back(name, tmp_path):
    config = read_config(name)
    write_config(tmp_path / "config.yaml", config)
    assert read_config(tmp_path / "config.yaml") == config
    text = configs()[name].read_text(encoding="utf-8")
    assert purpose(configs()[name])
    assert "eos search" in text.split("\nbackbone:")[0]  # the header has the exact command
    assert read_config(configs()[name]) == config


def test_the_papers_configuration_is_the_papers_table():
    config = read_config("paper-llava-1.5-7b")
    table = {"lr": 1e-3, "weight_decay": 0.0, "clip": 1.0, "batch": 4, "steps": 4000}
    table |= {"warmup": 0.05, "seed": 42, "init": "uniform"}
    assert {key: config.model_dump()[key] for key in table} == table
    assert config.objective.max_layers == 3
    assert config.objective.align_weight == 0.1
    assert config.objective.align_layers is None  # every fourth, at any depth
    assert align_layers(32) == tuple(range(4, 29, 4))
    assert config.layers is None
    assert default_layers(32) == [2, 6, 15]
    theta = first_theta(config, 0, num_layers=32, visual_tokens=576)
    assert theta.value("gamma")[6].item() == pytest.approx(0.5)
    assert theta.value("tau")[6].item() == pytest.approx(0.5)
    folder = Path(__file__).parent.parent / "configs" / "paper"
    assert (folder / "paper-llava-1.5-7b.yaml").exists()


def test_the_command_line_wins_false_and_zero_included():
    file = {"fix_layers": True, "objective": {"align_weight": 0.1, "ce_weight": 1.0}, "seed": 1}
    given = ["fix_layers=false", "objective.align_weight=0", "seed=0", "budgets=[16, 4]"]
    given += ["clip=null", "lr=1e-2", "validation.samples=8"]
    config = SearchConfig(**changed(file, given))
    assert config.fix_layers is False
    assert config.objective.align_weight == 0
    assert config.objective.ce_weight == 1.0
    assert (config.seed, config.budgets, config.clip, config.lr) == (0, (16, 4), None, 0.01)
    assert config.validation.samples == 8
    assert file["objective"]["align_weight"] == 0.1  # what was read is untouched
    assert SearchConfig(**changed(file, ["data.kind=llava", "data.file=a", "data.images=b"]))


def test_all_mistakes_are_told_at_once_with_suggestions(tmp_path):
    path = tmp_path / "bad.yaml"
    bad = {"stepps": 4, "lr": -1, "objective": {"aling_weight": 1}}
    bad |= {"data": {"kind": "llava", "fil": "x", "images": "y"}}
    path.write_text(yaml.safe_dump(bad))
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    message = str(caught.value)
    assert "5 problems" in message
    assert "stepps: unknown key; did you mean 'steps'?" in message
    assert "objective.aling_weight: unknown key; did you mean 'align_weight'?" in message
    assert "data.fil: unknown key; did you mean 'file'?" in message
    assert "data.file: missing" in message
    assert "lr: " in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["score=text-rater"], "score: expected one of"),
        (["relaxation.selection=best"], "relaxation.selection: expected one of"),
        (["relaxation.band=4", "relaxation.through=states"], "relaxation.band: expected 0"),
        (["relaxation.boundary=round"], "relaxation.boundary: "),
        (
            ["relaxation.boundary=soft", "relaxation.band=4"],
            "relaxation.band: expected 0 with a soft",
        ),
        (["starts=[prune, prune]"], "starts: expected each once"),
        (["starts=[prune, merge]", "race=1"], "race: expected less than all steps"),
        (["fix_layers=true", "fix.g=1"], "fix.g: expected none"),
        (["budget"], "expected key=value, found 'budget'"),
        (["budget=[1"], "expected a value in YAML"),
        (["init=pool"], "init: "),
        (["data.kind=nowhere"], "data: "),
    ],
)
def test_what_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        read_config("miniature", changes)


def test_configurations_that_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'miniature'"):
        read_config("minature")
    with pytest.raises(ConfigError, match="cannot read"):
        read_config(tmp_path / "gone.yaml")
    (tmp_path / "list.yaml").write_text("[1]")
    with pytest.raises(ConfigError, match="expected keys with values, found list"):
        read_config(tmp_path / "list.yaml")
    (tmp_path / "torn.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        read_config(tmp_path / "torn.yaml")


def test_the_rate_rises_over_the_warm_up_and_falls_to_nothing():
    config = SearchConfig(steps=100, lr=2.0, warmup=0.05)
    rates = [learning_rate(config, step) for step in range(100)]
    assert rates[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    assert rates[5] == 2.0
    assert rates[52] == pytest.approx(1.0, abs=0.03)
    assert all(later < earlier for earlier, later in pairwise(rates[5:]))
    assert 0 < rates[-1] < 0.01
    assert learning_rate(SearchConfig(steps=3, warmup=0), 0) == 1e-3


def test_temperatures_go_from_first_to_last():
    config = SearchConfig(steps=5, gate_temperature=(1, 16), budget_temperature=(2, 2))
    theta, seen = Theta(4, visual_tokens=9), []
    for step in range(5):
        set_temperatures(theta, config, step=step)
        seen.append(theta.gate_temperature)
        assert theta.budget_temperature == 2
    assert seen == pytest.approx([1, 2, 4, 8, 16])


def test_turns_of_a_race():
    config = SearchConfig(steps=10, starts=("uniform", "merge"), race=0.2)
    turns = [turn_at(config, done, winner=1) for done in range(total_turns(config))]
    assert turns[:5] == [Turn(0, 0), Turn(0, 1), Turn(1, 0), Turn(1, 1), Turn(1, 2)]
    assert turns[-1] == Turn(1, 9)
    assert len(turns) == 12
    alone = SearchConfig(steps=10)
    assert [turn_at(alone, d, winner=0).step for d in range(10)] == list(range(10))


def test_budgets_are_drawn_by_seed_and_step():
    config = SearchConfig(budgets=(192, 128, 64))
    drawn = [drawn_budget(config, step) for step in range(60)]
    assert set(drawn) == {192, 128, 64}
    assert drawn == [drawn_budget(config, step) for step in range(60)]
    assert drawn != [drawn_budget(config.model_copy(update={"seed": 1}), s) for s in range(60)]
    assert drawn_budget(SearchConfig(budget=7), 3) == 7


@pytest.mark.parametrize("budget", [16, 64, 300])
def test_theta_at_another_budget(budget):
    theta = Theta.start(32, visual_tokens=576, budget=64)
    with torch.no_grad():
        theta.weights["c"] += torch.linspace(-1, 1, 32)
    seen = AtBudget(theta, budget)
    assert seen.expected_schedule()[-1].item() == pytest.approx(budget, rel=1e-4)
    keep, own = 1 - seen.compression.detach(), 1 - theta.compression.detach()
    exponent = log(budget / 576) / own.log().sum().item()
    assert torch.allclose(keep, own**exponent, atol=1e-6)
    assert torch.equal(seen.g, theta.g)
    seen.expected_schedule()[5].backward()
    assert all(theta.weights[group].grad.any() for group in ("g", "c"))
    assert AtBudget(theta, 64).retain_schedule()[-1] <= 64


def test_theta_at_another_budget_keeps_what_is_fixed():
    theta = Theta.start(8, visual_tokens=576, budget=64, layers=[2, 4])
    theta.fix("g", 0.0).fix("g", 1.0, layers=[2, 4]).fix("c", 0.5).fix("gamma", 0.0)
    seen = AtBudget(theta, 36)
    keep = (1 - seen.compression).tolist()
    assert keep == pytest.approx([1, 1, 0.25, 1, 0.25, 1, 1, 1], abs=1e-5)
    assert seen.entries("g")[0] == 0.0
    assert seen.omega(2).gamma == 0.0
    seen.expected_schedule()[-1].backward()
    grads = [theta.weights[group].grad for group in GROUPS]
    assert all(grad is None or bool(grad.isfinite().all()) for grad in grads)


@pytest.mark.parametrize("temperatures", [(1, 4), (4, 16)])
def test_a_start_has_its_values_at_the_first_temperatures(temperatures):
    temperatures = {"gate_temperature": temperatures, "budget_temperature": (2, 3)}
    config = SearchConfig(method="paper", **temperatures)
    theta = first_theta(config, 0, num_layers=32, visual_tokens=576)
    set_temperatures(theta, config, step=0)
    assert theta.g[2].item() == pytest.approx(0.98)
    assert theta.g[3].item() == pytest.approx(0.02)
    assert theta.expected_schedule()[-1].item() == pytest.approx(64, rel=1e-4)
    set_temperatures(theta, config, step=config.steps - 1)
    assert theta.g[3].item() < 1e-5


def test_sharpening_parts_gates_and_leaves_counts_in_place():
    config = SearchConfig(budget=16, steps=6, gate_temperature=(1, 4), budget_temperature=(1, 3))
    theta = first_theta(config, 0, num_layers=12, visual_tokens=576)
    counts, gates = theta.c.detach().clone(), theta.g.detach().clone()
    for step in range(config.steps):
        sharpen(theta, config, step=step)
    assert theta.budget_temperature == pytest.approx(3)
    torch.testing.assert_close(theta.c, counts)
    assert theta.g.max() > gates.max()
    assert theta.g.min() < gates.min()
    set_temperatures(theta, config, step=0)  # negative control: a temperature alone moves c
    assert (theta.c - counts).abs().max() > 0.05


def test_the_papers_rate_can_open_a_closed_gate():
    config = read_config("paper-llava-1.5-7b")
    theta = first_theta(config, 0, num_layers=32, visual_tokens=576)
    reach = sum(learning_rate(config, step) for step in range(config.steps))  # Adam's, at most
    assert reach > -theta.weights["g"].min().item()
    cold = config.model_copy(update={"gate_temperature": (1.0, 4.0)})
    start = first_theta(cold, 0, num_layers=32, visual_tokens=576)
    assert reach < -start.weights["g"].min().item()


def test_fixed_layers_start_at_the_budget():
    fixed = {"layers": (3, 9), "fix_layers": True, "fix": {"tau": float("inf")}}
    config = SearchConfig(method="paper", **fixed)
    theta = first_theta(config, 0, num_layers=12, visual_tokens=576)
    assert theta.g.tolist() == [float(layer in (3, 9)) for layer in range(12)]
    assert theta.expected_schedule()[-1].item() == pytest.approx(64, rel=1e-4)
    assert theta.value("tau")[3].item() == float("inf")
