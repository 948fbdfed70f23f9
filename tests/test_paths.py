"""Shortest paths through a profile: exact, within the limits, and careful where it is noisy."""

from itertools import combinations, pairwise
from random import Random

import pytest

from eos import ConfigError, Plan, Step
from eos.searching.curves import Point, Profile, screening_count
from eos.searching.explore import candidates, references
from eos.searching.paths import BUCKETS, count_grid, predicted_loss, read_costs, shortest_path
from eos.searching.profile import counts
from eos.searching.space import Space
from eos.space.cost import LLAMA_7B

LAYERS, TOKENS = 6, 64


def space(**changes):
    told = {"num_layers": LAYERS, "visual_tokens": TOKENS, "dims": LLAMA_7B, "text_tokens": 4}
    told |= {"budget": 4, "max_flops": 0.5, "max_layers": 3, "operators": False}
    told |= {"scorers": dict.fromkeys(range(-1, LAYERS - 1), ("diversity",))}
    return Space(**{**told, **changes})


def profile(loss, score="diversity", stderr=0.0, sites=range(-1, LAYERS - 1)):
    """A profile whose disagreement at a site and a count is ``loss(site, count)``."""
    points = [
        Point(layer=site, score=score, keep=n, mean=loss(site, n), stderr=stderr, samples=9)
        for site in sites
        for n in counts(TOKENS)
    ]
    sizes = {"num_layers": LAYERS, "visual_tokens": TOKENS, "dims": LLAMA_7B}
    return Profile(backbone="x", fingerprint="f", data="d", **sizes, passes=1, points=points)


def falling(site, count):
    """Early layers need their tokens: the usual picture, with a dent at layer 2."""
    need = {2: 0.1}.get(site, 1.0 - 0.2 * (site + 1))
    return need * (1 - count / TOKENS)


def enumerated(costs, here):
    """The least loss of all paths on the grid, by trying them."""
    best = None
    unit = here.max_flops / BUCKETS
    for number in range(1, here.max_layers + 1):
        for layers in combinations(here.sites, number):
            for places in combinations(range(1, len(costs.grid) - 1), number - 1):
                ends = [*places, len(costs.grid) - 1]
                if here.flops(layers, [costs.grid[j] for j in ends]) > here.max_flops - 9 * unit:
                    continue
                loss = sum(
                    costs.loss[layer][b] - costs.loss[layer][a]
                    for layer, (a, b) in zip(layers, pairwise([0, *ends]), strict=True)
                )
                best = loss if best is None else min(best, loss)
    return best


@pytest.mark.parametrize("limit", [0.25, 0.4, 0.6])
def test_no_path_is_shorter(limit):
    here = space(max_flops=limit)
    costs = read_costs(profile(falling), here)
    steps = shortest_path(costs, here)
    found = predicted_loss(steps, costs)
    assert found <= enumerated(costs, here) + 1e-9
    assert here.flops([s.layer for s in steps], [s.keep for s in steps]) <= limit
    assert steps[-1].keep == 4
    # the control: another placement of the same counts costs more
    moved = [step.model_copy(update={"layer": step.layer + 1}) for step in steps]
    if moved[-1].layer in here.sites:
        assert predicted_loss(moved, costs) != found


def test_a_path_goes_where_dropping_is_cheap():
    here = space(max_layers=1, max_flops=0.7)
    steps = shortest_path(read_costs(profile(falling), here), here)
    assert [step.layer for step in steps] == [2]
    steep = profile(lambda site, n: falling(site, n) + 2.0 * (site == 2))
    assert [s.layer for s in shortest_path(read_costs(steep, here), here)] != [2]


def test_limits_that_nothing_meets_give_no_path():
    assert shortest_path(read_costs(profile(falling), space()), space(max_flops=0.01)) is None
    with pytest.raises(ConfigError, match="max_flops"):
        candidates(profile(falling), space(max_flops=0.01), paths=2, seed=0)


def test_a_limit_met_exactly_leaves_the_plan_that_meets_it():
    """FLOPs on a path are rounded up: there is none, though one plan is within the limit."""
    least = space().flops([-1], [4])
    tight = space(max_flops=least)
    assert shortest_path(read_costs(profile(falling), tight), tight) is None
    (found,) = candidates(profile(falling), tight, paths=2, seed=0)
    assert [(step.layer, step.keep) for step in found.steps] == [(-1, 4)]
    with pytest.raises(ConfigError, match="max_flops"):
        candidates(profile(falling), space(max_flops=0.999 * least), paths=2, seed=0)


def test_a_path_can_be_made_to_begin_anywhere():
    here = space(max_flops=0.6)
    costs = read_costs(profile(falling), here)
    for site in (-1, 0, 1):
        assert shortest_path(costs, here, begin=[site])[0].layer == site
        pair = shortest_path(costs, here, begin=[site, 3])
        assert [step.layer for step in pair[:2]] == [site, 3]
    assert shortest_path(costs, here, begin=[3, 1]) is None


def test_curves_never_fall_as_tokens_go():
    noisy = profile(lambda site, n: 0.5 if n == 16 else 0.1)
    loss = read_costs(noisy, space()).loss[0]
    assert loss[0] == 0.0
    assert all(after >= before for before, after in pairwise(loss))


def test_caution_avoids_what_is_not_certain():
    sure, unsure = profile(lambda s, n: 0.2), profile(lambda s, n: 0.15, stderr=0.2)
    points = [p for p in sure.points if p.layer != 1] + [p for p in unsure.points if p.layer == 1]
    mixed = sure.model_copy(update={"points": tuple(points)})
    here = space(max_layers=1, max_flops=0.5)
    assert shortest_path(read_costs(mixed, here), here)[0].layer == 1
    assert shortest_path(read_costs(mixed, here, caution=1.0), here)[0].layer != 1


def test_draws_differ_only_where_the_profile_is_uncertain():
    here = space()
    sure = {str(candidates(profile(falling), here, paths=6, seed=seed)) for seed in (0, 1)}
    assert len(sure) == 1
    vague = profile(falling, stderr=0.3)
    assert len({str(candidates(vague, here, paths=6, seed=seed)) for seed in (0, 1)}) == 2
    drawn = [read_costs(vague, here, chance=Random(0)) for _ in range(2)]
    assert all((drawn[0].loss[s] == drawn[1].loss[s]).all() for s in here.sites)


def test_the_best_scorer_of_a_site_is_taken():
    good, bad = profile(falling), profile(lambda s, n: falling(s, n) + 0.1, score="all-text")
    both = good.model_copy(update={"points": (*good.points, *bad.points)})
    here = space(scorers=dict.fromkeys(range(-1, LAYERS - 1), ("diversity", "all-text")))
    steps = shortest_path(read_costs(both, here), here)
    assert {step.score for step in steps} == {"diversity"}
    only = space(scorers=dict.fromkeys(range(-1, LAYERS - 1), ("all-text",)))
    assert {s.score for s in shortest_path(read_costs(both, only), only)} == {"all-text"}
    assert both.ranking(0) == ["diversity", "all-text"]


def test_grids_end_at_the_budget_and_profiles_halve():
    assert count_grid(64, 4)[0] == 64
    assert count_grid(64, 4)[-1] == 4
    assert counts(64) == [32, 16, 8, 4, 2, 1]
    assert screening_count(64) == 8


def test_samples_are_chosen_by_plans_at_different_layers():
    def plan(*layers, score="diversity"):
        steps = [Step(layer=x, keep=90 - x, score=score) for x in layers]
        return Plan(visual_tokens=100, num_layers=32, steps=tuple(steps))

    first, other = plan(0, 5), plan(1, 5)
    alike = plan(0, 5, score="all-text")
    assert references([first, alike, other, plan(2)]) == [first, other]
    assert references([first, alike]) == [first]
