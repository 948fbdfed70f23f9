"""Plans: what is refused, what is equal, and how they follow from Θ and from budgets."""

import json
from math import inf

import pytest

from eos import Operator, Plan, PlanError, Step, Theta
from eos.space.cost import Dims
from eos.space.deployment import Deployment

MERGE = Operator(gamma=1.0, tau=0.0, theta=-inf)


def plan(*steps, **fields):
    return Plan(visual_tokens=576, num_layers=32, steps=steps, **fields)


def step(layer, keep, **fields):
    return Step(layer=layer, keep=keep, **fields)


PYRAMID = (step(2, 300), step(6, 200, operator=MERGE), step(15, 118))


def test_costs_travel_with_the_plan():
    expected = plan(*PYRAMID).expected
    assert expected.final_tokens == 118
    assert expected.mean_tokens == 206.75
    assert 0.4 < expected.flops_ratio < 0.5
    assert expected.text_tokens == 64
    small = Dims(hidden=192, intermediate=512, heads=6, kv_heads=6, head_dim=32)
    assert plan(*PYRAMID, dims=small).expected.flops_ratio < expected.flops_ratio


@pytest.mark.parametrize("layer", [-1, 31])
def test_the_ends_of_the_model_are_allowed(layer):
    assert plan(step(layer, 64)).schedule[-1] == 64


def test_keeping_everything_is_a_plan():
    assert plan(step(3, 576)).expected.flops_ratio == 1.0
    assert plan().expected.final_tokens == 576


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([step(2, 577)], r"steps.0.keep: expected 1 to 576, .* found 577"),
        ([step(2, 100), step(6, 101)], r"steps.1.keep: expected 1 to 100, .* found 101"),
        ([step(2, 0)], r"steps.0.keep: expected 1 to 576"),
        ([step(6, 200), step(2, 100)], r"steps.1.layer: expected a layer after 6, found 2"),
        ([step(6, 200), step(6, 100)], r"steps.1.layer: expected a layer after 6, found 6"),
        ([step(32, 100)], r"steps.0.layer: expected -1 to 31, found 32"),
        ([step(-2, 100)], r"steps.0.layer: expected -1 to 31, found -2"),
        ([step(2, 100, score="fastest")], r"expected one of text-raters.*found 'fastest'"),
    ],
)
def test_a_contradictory_plan_is_refused(steps, message):
    with pytest.raises(PlanError, match=message):
        plan(*steps)


def test_all_problems_are_told_at_once():
    with pytest.raises(PlanError) as refusal:
        plan(step(2, 700, score="nothing"), step(40, 800), step(1, 900))
    text = str(refusal.value)
    assert text.startswith("6 problems")
    for problem in (
        "found 700",
        "'nothing'",
        "found 40",
        "found 800",
        "a layer after 40",
        "found 900",
    ):
        assert problem in text


def test_misspelt_keys_are_refused_with_a_suggestion():
    with pytest.raises(
        PlanError, match=r"(?s)steps.0.kep.*did you mean 'keep'.*num_layer: .*'num_layers'"
    ):
        Plan(visual_tokens=576, num_layer=32, steps=[{"layer": 2, "kep": 3}])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"tau": -0.1}, "tau"),
        ({"rho": -1}, "rho"),
        ({"nu": 2}, "nu"),
        ({"theta": float("nan")}, "expected a number, found nan"),
        ({"norm": "l1"}, "'token' or 'frobenius'"),
        ({"kind": "magic"}, r"steps.0.operator.kind: .*found 'magic'"),
    ],
)
def test_operators_outside_their_range_are_refused(values, message):
    with pytest.raises(PlanError, match=message):
        plan({"layer": 2, "keep": 100, "operator": values})


def test_json_round_trip(tmp_path):
    original = plan(*PYRAMID, step(20, 60, operator=Operator(gamma=1.0, tau=inf)), backbone="llava")
    original.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again == original
    assert hash(again) == hash(original)
    text = (tmp_path / "plan.json").read_text()
    data = json.loads(text)
    assert data["schema"] == "eos.plan/1"
    assert data["steps"][1]["operator"]["theta"] == "-inf"
    assert data["steps"][3]["operator"]["tau"] == "inf"
    assert set(data["expected"]) >= {"final_tokens", "mean_tokens", "flops_ratio", "kv_bytes_ratio"}
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "eos.plan/2"}, "eos.plan/1"),
        ({"expected": {"final_tokens": 64}}, "expected: the steps cost .*'final_tokens': 118"),
        ({"steps": "none"}, "steps"),
        ({"visual_tokens": 0}, "visual_tokens"),
    ],
)
def test_a_file_that_is_not_a_plan_is_refused(tmp_path, change, message):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**json.loads(plan(*PYRAMID).to_json()), **change}))
    with pytest.raises(PlanError, match=message):
        Plan.load(path)


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(PlanError, match=r"cannot read .*missing.json: No such file"):
        Plan.load(tmp_path / "missing.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(PlanError, match=r"broken.json is not JSON"):
        Plan.load(tmp_path / "broken.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(PlanError, match=r"expected keys with values, found list"):
        Plan.load(tmp_path / "list.json")


def test_a_plan_cannot_change():
    with pytest.raises(ValueError, match="frozen"):
        plan(*PYRAMID).visual_tokens = 10


def test_equality_is_about_what_is_done():
    assert plan(*PYRAMID, provenance={"run": "a"}) == plan(*PYRAMID, provenance={"run": "b"})
    assert plan(*PYRAMID) != plan(*PYRAMID[:2])
    assert plan(*PYRAMID) != "a plan"


@pytest.mark.parametrize("budget", [192, 128, 64, 32, 16])
def test_rescaling_keeps_layers_and_operators(budget):
    original = plan(*PYRAMID)
    rescaled = original.rescaled(budget)
    assert rescaled.expected.final_tokens == budget
    for before, after in zip(original.steps, rescaled.steps, strict=True):
        assert (before.layer, before.operator, before.score) == (
            after.layer,
            after.operator,
            after.score,
        )


def test_an_even_budget_of_prumerge_plus_is_refused_when_the_plan_is_made():
    assert Plan.preset("prumerge+-original", budget=65).expected.final_tokens == 65
    with pytest.raises(PlanError, match=r"expected an odd budget, .* 2k \+ 1 tokens; found 64"):
        Plan.preset("prumerge+-original", budget=64)


def test_rescaling_to_the_same_budget_changes_nothing():
    assert plan(*PYRAMID).rescaled(118) == plan(*PYRAMID)


@pytest.mark.parametrize("budget", [192, 128, 100])
def test_rescaling_to_a_mean_budget(budget):
    rescaled = plan(*PYRAMID).rescaled(budget, kind="mean")
    assert budget - 3 <= rescaled.expected.mean_tokens <= budget


def test_a_mean_out_of_reach_is_refused_with_what_is_reachable():
    with pytest.raises(PlanError, match=r"at least \d+\.\d tokens.*found 10"):
        plan(*PYRAMID).rescaled(10, kind="mean")
    with pytest.raises(PlanError, match="between 1 and 576"):
        plan(*PYRAMID).rescaled(600)


def start():
    return Theta.start(32, visual_tokens=576, budget=64)


def plan_of(theta, *, every_layer=False, **deployment):
    theta.deployment = Deployment(**deployment)
    return Plan.from_theta(theta, every_layer=every_layer)


def test_a_plan_takes_the_largest_gates():
    theta = start().set("g", 0.7, layers=[20]).set("g", 0.6, layers=[25])
    assert [s.layer for s in Plan.from_theta(theta).steps] == [2, 6, 15]
    assert [s.layer for s in plan_of(theta, max_layers=4).steps] == [2, 6, 15, 20]
    assert [s.layer for s in plan_of(theta, max_layers=9).steps] == [2, 6, 15, 20, 25]


@pytest.mark.parametrize("budget", [192, 64, 16])
def test_a_plan_of_theta_meets_any_budget(budget):
    found = Plan.from_theta(start(), budget=budget)
    assert found.expected.final_tokens == budget
    assert found.steps[0].operator.gamma == pytest.approx(0.5)


def test_all_layers_give_exactly_the_search_forward_counts():
    theta = start()
    assert Plan.from_theta(theta, every_layer=True).schedule == theta.retain_schedule()
    assert Plan.from_theta(theta).schedule != theta.retain_schedule()


def test_a_theta_without_open_gates_is_refused():
    with pytest.raises(PlanError, match=r"found 0\.020 at most"):
        Plan.from_theta(start().set("g", 0.02))


def test_exact_limits_reach_the_plan():
    theta = (
        start().fix("gamma", 1.0).fix("tau", 0.0).fix("theta", -inf).fix("rho", 0.0).fix("nu", 0.0)
    )
    assert Plan.from_theta(theta).steps[0].operator == MERGE
    assert Plan.from_theta(theta).steps[0].operator.regime.name == "merge"


def test_the_printed_table():
    lines = str(plan(*PYRAMID)).splitlines()
    assert len(lines) == 5
    assert lines[2].split() == ["6", "200", "text-raters", "1", "0", "-inf", "0", "0", "merge"]
    assert "118 final, 206.8 mean entering a layer, FLOPs x" in lines[4]
    assert "(no steps: the full model)" in str(plan())


def test_a_reduced_input_is_a_step_before_the_decoder():
    theta = Theta.start(32, visual_tokens=576, budget=64, input_site=True, layers=[-1, 6])
    found = Plan.from_theta(theta)
    assert [(step.layer, step.score) for step in found.steps] == [
        (-1, "dissimilarity"),
        (6, "text-raters"),
    ]
    exact = plan_of(theta, input_score="cls-attention", every_layer=True)
    assert exact.schedule == theta.retain_schedule()
    assert exact.steps[0].score == "cls-attention"
    assert (
        exact.expected.flops_ratio < Plan.from_theta(start(), every_layer=True).expected.flops_ratio
    )
