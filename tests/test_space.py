"""The space of plans: limits are met by construction, and every drawn plan is inside."""

from random import Random

import pytest

from eos import Operator, Step
from eos.searching.moves import MOVES, neighbours
from eos.searching.space import Space
from eos.space.cost import LLAMA_7B, fit_to_flops

NAMES = ("text-raters", "all-text", "diversity")


def space(**changes):
    told = {"num_layers": 12, "visual_tokens": 576, "dims": LLAMA_7B, "text_tokens": 16}
    told |= {"budget": 16, "max_flops": 0.25, "max_layers": 3}
    told |= {"scorers": {-1: ("diversity",), **dict.fromkeys(range(11), NAMES)}}
    return Space(**{**told, **changes})


def steps(*pairs, score="all-text"):
    return [Step(layer=layer, keep=keep, score=score) for layer, keep in pairs]


def test_counts_are_fitted_to_the_flops_limit_from_either_side():
    here = space()
    for wanted in ([500, 400, 16], [40, 20, 16]):
        plan = here.plan(steps(*zip((0, 4, 8), wanted, strict=True)))
        assert plan.steps[-1].keep == 16
        assert 0.97 * 0.25 < plan.expected.flops_ratio <= 0.25
    unfitted = here.flops((0, 4, 8), (500, 400, 16))
    assert unfitted > 0.25  # what the limit was needed for


def test_what_cannot_be_met_is_no_plan():
    assert space().plan(steps((9, 16))) is None
    assert space(max_flops=0.9).plan(steps((9, 16))) is not None


def test_a_step_that_drops_nothing_is_left_out():
    plan = space(max_flops=1.0).plan(steps((0, 576), (4, 100), (8, 16)))
    assert [step.layer for step in plan.steps] == [8]  # with FLOPs to spare, all tokens stay


def test_fitting_keeps_the_order_and_the_last():
    counts = fit_to_flops([300, 50, 10], tokens=576, max_flops=400, flops_of=sum)
    assert counts[-1] == 10
    assert counts == sorted(counts, reverse=True)
    assert 380 < sum(counts) <= 400
    assert fit_to_flops([300, 50, 10], tokens=576, max_flops=29, flops_of=sum) is None


@pytest.mark.parametrize("seed", range(20))
def test_random_plans_are_inside(seed):
    here = space()
    plan = here.random_plan(Random(seed))
    assert plan == here.random_plan(Random(seed))
    assert plan.expected.final_tokens == 16
    assert plan.expected.flops_ratio <= 0.25
    assert 1 <= len(plan.steps) <= 3
    assert all(step.score in here.scorers[step.layer] for step in plan.steps)


def test_without_operators_all_plans_prune():
    drawn = [space(operators=False).random_plan(Random(seed)) for seed in range(30)]
    assert {step.operator for plan in drawn for step in plan.steps} == {Operator()}
    free = [space().random_plan(Random(seed)) for seed in range(30)]
    assert len({step.operator for plan in free for step in plan.steps}) > 10


def everything_around(plan, here):
    ranking = {site: list(names) for site, names in here.scorers.items()}
    return {kind: neighbours(plan, here, kind=kind, ranking=ranking) for kind in MOVES}


def test_neighbours_differ_in_one_step_and_stay_inside():
    here = space()
    plan = here.plan(steps((0, 200), (4, 60), (8, 16)))
    around = everything_around(plan, here)
    every = [other for kind in around.values() for other in kind]
    assert plan not in every
    assert len(set(every)) == len(every) > 30
    for other in every:
        assert other.expected.flops_ratio <= 0.25
        assert other.expected.final_tokens == 16
        same = {(s.layer, s.score, s.operator) for s in plan.steps}
        assert len(same & {(s.layer, s.score, s.operator) for s in other.steps}) >= 2
    layers = {tuple(step.layer for step in other.steps) for other in around["layers"]}
    assert {(1, 4, 8), (0, 2, 8), (0, 3, 8), (0, 4, 10), (-1, 4, 8)} <= layers
    fewer = {tuple(step.layer for step in other.steps) for other in around["steps"]}
    assert fewer == {(0, 4), (0, 8)}  # four full layers would be too many FLOPs
    # at the input only what works there
    assert all(s.score == "diversity" for other in every for s in other.steps if s.layer < 0)


def test_every_kind_of_move_changes_what_it_says():
    here = space()
    plan = here.plan(steps((0, 200), (4, 60), (8, 16)))
    around = everything_around(plan, here)
    for kind, same in {
        "tokens": lambda s: (s.layer, s.score, s.operator),
        "operators": lambda s: (s.layer, s.score),
        "scorers": lambda s: (s.layer, s.operator),
    }.items():
        assert around[kind]
        for other in around[kind]:
            assert [same(s) for s in other.steps] == [same(s) for s in plan.steps], kind
    first = [other.steps[0].keep for other in around["tokens"]]
    assert min(first) < plan.steps[0].keep < max(first)
    assert everything_around(plan, space(operators=False))["operators"] == []


def test_a_step_that_passes_another_leaves_more_tokens():
    here = space()
    plan = here.plan(steps((0, 200), (3, 60), (4, 16)))
    passed = [
        other for other in everything_around(plan, here)["layers"] if other.steps[1].layer == 2
    ]
    assert passed
    for other in [*passed, *everything_around(plan, here)["layers"]]:
        keeps = [step.keep for step in other.steps]
        assert keeps == sorted(keeps, reverse=True)


def test_picks_are_mixed_in_and_not_mixed_into():
    here = space()
    plan = here.plan(steps((0, 200), (4, 60), (8, 16)))
    picking = plan.model_copy(
        update={"steps": tuple(s.model_copy(update={"score": "diversity"}) for s in plan.steps)}
    )
    found = {s.score for other in everything_around(plan, here)["scorers"] for s in other.steps}
    assert "0.7*all-text+0.3*diversity" in found
    swapped = {
        s.score for other in everything_around(picking, here)["scorers"] for s in other.steps
    }
    assert "0.3*diversity+0.7*all-text" in swapped
    assert not any(score.startswith("0.7*diversity") for score in swapped)


def test_a_plan_with_room_gains_steps():
    here = space()
    around = everything_around(here.plan(steps((0, 16))), here)
    assert max(len(plan.steps) for plan in around["steps"]) == 2
