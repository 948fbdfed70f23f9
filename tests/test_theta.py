"""The search space."""

import json
from math import inf

import pytest
import torch

from eos import ConfigError, Theta, regime
from eos.operator.operate import Omega
from eos.space import cost
from eos.space.cost import LLAMA_7B
from eos.space.starts import default_layers
from eos.space.theta import GROUPS


def start(**options):
    return Theta.start(32, visual_tokens=576, budget=64, **options)


def randomised(seed=0):
    theta = Theta(32, visual_tokens=576)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in theta.weights.values():
            weight.copy_(torch.randn(32, generator=generator))
    return theta


def test_the_maps_are_the_papers():
    theta = randomised()
    theta.gate_temperature, theta.budget_temperature = 3.0, 2.0
    w = theta.weights
    assert torch.equal(theta.g, torch.sigmoid(w["g"] * 3.0))
    assert torch.equal(theta.c, torch.sigmoid(w["c"] * 2.0))
    assert torch.equal(theta.value("tau"), torch.nn.functional.softplus(w["tau"]) + 1e-6)
    assert torch.equal(theta.value("theta"), 2 * torch.sigmoid(w["theta"]) - 1)
    for group in ("gamma", "rho", "nu"):
        assert torch.equal(theta.value(group), torch.sigmoid(w[group]))


@pytest.mark.parametrize(("init", "gamma"), [("uniform", 0.5), ("prune", 0.02)])
def test_both_starts(init, gamma):
    theta = start(init=init)
    assert torch.nonzero(theta.g > 0.5).flatten().tolist() == [2, 6, 15]
    expected = {"gamma": gamma, "tau": 0.5, "theta": 0.0, "rho": 0.02, "nu": 0.02}
    for group, value in expected.items():
        assert torch.allclose(theta.value(group), torch.tensor(value), atol=1e-6)
    assert theta.expected_schedule()[-1].item() == pytest.approx(64, rel=1e-4)


def test_the_third_start_merges_everywhere():
    def regimes(init):
        values = torch.stack([start(init=init).value(group) for group in GROUPS[2:]], dim=1)
        return {str(regime(*row)) for row in values.tolist()}

    assert regimes("merge") == {"merge"}
    assert regimes("prune") == {"prune"}


def test_an_impossible_start_is_refused():
    with pytest.raises(ConfigError, match=r"\['merge', 'prune', 'uniform'\], found 'pool'"):
        start(init="pool")
    with pytest.raises(ConfigError, match="from 1 to 575, found 576"):
        Theta.start(32, visual_tokens=576, budget=576)


@pytest.mark.parametrize(
    ("depth", "layers"),
    [(32, [2, 6, 15]), (12, [1, 2, 6]), (40, [2, 8, 19]), (2, [0, 1]), (1, [0])],
)
def test_default_layers_scale_with_depth(depth, layers):
    assert default_layers(depth) == layers


def test_every_group_of_every_layer_takes_gradients():
    theta = start()
    loss = cost.flops_ratio(theta.expected_schedule(), LLAMA_7B, tokens=576, text_tokens=64)
    loss = loss + sum(value.sum() for layer in range(32) for value in theta.omega(layer))
    loss.backward()
    for group in GROUPS:
        gradient = theta.weights[group].grad
        assert gradient is not None
        expected = 31 if group in ("g", "c") else 32  # what the last layer drops enters no layer
        assert int((gradient != 0).sum()) == expected


def test_sharper_temperatures_push_gates_apart():
    theta = randomised()
    spread = theta.g.std()
    theta.gate_temperature = 10.0
    assert theta.g.std() > spread


def test_fixed_entries_are_exact_and_take_no_gradient():
    theta = start()
    theta.fix("gamma", 0.0, layers=[2]).fix("tau", inf, layers=[6]).fix("theta", -inf)
    assert theta.omega(2).gamma == 0.0
    assert theta.omega(6).tau == inf
    assert isinstance(theta.omega(6).gamma, torch.Tensor)
    theta.value("gamma").sum().backward()
    gradient = theta.weights["gamma"].grad
    assert gradient[2] == 0
    assert (gradient[[0, 1, 3]] != 0).all()


def test_freezing_keeps_values_and_releasing_frees_them():
    theta = randomised()
    before = theta.g.detach().clone()
    theta.freeze("g", "c")
    with torch.no_grad():
        for weight in theta.weights.values():
            weight.add_(1.0)
    assert torch.equal(theta.g, before)
    theta.release("g")
    assert not torch.equal(theta.g, before)


def test_a_frozen_theta_survives_an_optimiser_step():
    theta = start().freeze("g", layers=[2, 6, 15]).freeze("c")
    before = {group: theta.value(group).detach().clone() for group in GROUPS}
    optimiser = torch.optim.AdamW(theta.parameters(), lr=0.1, weight_decay=0.0)
    (theta.expected_schedule()[-1] + sum(theta.omega(6))).backward()
    optimiser.step()
    assert torch.equal(theta.c, before["c"])
    assert torch.equal(theta.g[[2, 6, 15]], before["g"][[2, 6, 15]])
    assert not torch.equal(theta.g[[0, 1]], before["g"][[0, 1]])
    assert theta.value("gamma")[6] != before["gamma"][6]


def test_prior_methods_are_fixed_points():
    # FastV, K = 2: one layer, half of the tokens, pruning
    theta = Theta(32, visual_tokens=576)
    theta.fix("g", 0.0).fix("g", 1.0, layers=[1]).fix("c", 0.5)
    theta.fix("gamma", 0.0).fix("rho", 0.0).fix("nu", 0.0).fix("tau", 1.0).fix("theta", -1.0)
    assert theta.retain_schedule() == [576, 576] + [288] * 31
    assert theta.omega(1) == Omega(0.0, 1.0, -1.0, 0.0, 0.0)
    assert theta.omega(1).prunes


def test_counts_of_the_forward_pass():
    theta = Theta(4, visual_tokens=100, k_min=20)
    theta.fix("g", 1.0).fix("c", torch.tensor([0.0, 0.35, 0.5, 0.9]))
    assert theta.retain_schedule() == [100, 100, 65, 32, 20]


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5])
def test_values_on_the_border_cannot_be_set_only_fixed(value):
    with pytest.raises(ConfigError, match=r"limits need fix\(\)"):
        start().set("gamma", value)


def test_layers_outside_the_model_are_refused():
    with pytest.raises(ConfigError, match=r"from 0 to 31, found \[32\]"):
        start().freeze("g", layers=[3, 32])


def test_json_round_trip_is_exact(tmp_path):
    theta = randomised()
    theta.gate_temperature = 4.0
    theta.fix("tau", inf, layers=[6]).fix("theta", -inf, layers=[7]).fix("gamma", 0.0, layers=[2])
    theta.save(tmp_path / "theta.json")
    again = Theta.load(tmp_path / "theta.json")
    assert repr(again) == repr(theta)
    for group in GROUPS:
        assert torch.equal(again.weights[group], theta.weights[group])
        assert torch.equal(again.value(group), theta.value(group))
    assert json.loads((tmp_path / "theta.json").read_text())["schema"] == "eos.theta/1"


def test_a_damaged_file_is_refused_with_all_problems(tmp_path):
    path = tmp_path / "theta.json"
    randomised().save(path)
    data = json.loads(path.read_text())
    data["weights"]["g"] = data["weights"]["g"][:5]
    del data["fixed"]["tau"]
    path.write_text(json.dumps(data))
    with pytest.raises(
        ConfigError, match=r"(?s)weights.g: expected 32 numbers, found 5.*fixed.tau"
    ):
        Theta.load(path)


def test_repr_is_a_table():
    text = repr(start())
    assert text.startswith("Theta(32 layers, 576 tokens, N_final=")
    assert len(text.splitlines()) == 34
    assert "hybrid" in text


def test_the_input_can_be_a_site():
    theta = start(input_site=True, layers=[-1, 6])
    assert theta.sites == range(-1, 32)
    assert torch.nonzero(theta.g > 0.5).flatten().tolist() == [0, 7]
    expected, retained = theta.expected_schedule(), theta.retain_schedule()
    assert len(expected) == len(retained) == 33
    first = 576 * (1 - theta.compression[0].item())
    assert expected[0].item() == pytest.approx(first, rel=1e-5)  # what enters layer 0 is reduced
    assert retained[0] == int(first)
    assert expected[-1].item() == pytest.approx(64, rel=1e-3)
    assert len(start().retain_schedule()) == 33
    assert start().retain_schedule()[0] == 576
    theta.fix("gamma", 0.0, layers=[-1])
    assert theta.omega(-1).gamma == 0.0
    assert isinstance(theta.omega(0).gamma, torch.Tensor)
    with pytest.raises(ConfigError, match=r"layers from 0 to 31, found \[-1\]"):
        start().set("g", 0.5, layers=[-1])


def test_a_theta_with_an_input_site_survives_its_file(tmp_path):
    theta = start(input_site=True).fix("tau", inf, layers=[-1])
    theta.save(tmp_path / "theta.json")
    again = Theta.load(tmp_path / "theta.json")
    assert again.sites == theta.sites
    assert again.retain_schedule() == theta.retain_schedule()
    assert repr(again) == repr(theta)
    data = json.loads((tmp_path / "theta.json").read_text())
    del data["input_site"]
    (tmp_path / "theta.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=r"weights.g: expected 32 numbers, found 33"):
        Theta.load(tmp_path / "theta.json")
