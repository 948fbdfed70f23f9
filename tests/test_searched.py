"""Plans that come with the package: what they are, and that they fit the model they belong to."""

import pytest

import eos
from eos import Plan, PlanError, Theta
from eos.evaluation.specs import named_plans
from eos.models.processor import fingerprint, locate
from eos.searching.curves import Profile
from eos.searching.paths import read_costs, shortest_path
from eos.searching.space import Space
from eos.space.searched import load_searched, searched

NAME = "eos-miniature"


@pytest.mark.parametrize("budget", [64, 32, 16])
def test_a_plan_is_loaded_by_name_within_the_flops_of_sparsevlm_v2(budget):
    plan = load_searched(NAME, budget)
    assert plan.expected.final_tokens == budget
    sizes = {"visual_tokens": 576, "num_layers": 12, "dims": plan.dims, "text_tokens": 16}
    assert plan.text_tokens == 16
    other = Plan.preset("sparsevlm-v2", budget=budget, **sizes)
    assert plan.expected.flops_ratio <= other.expected.flops_ratio
    assert [stage["name"] for stage in plan.provenance["search"]["stages"]][-1] == "confirmed"


def test_other_budgets_are_rescaled_from_the_nearest():
    assert load_searched(NAME, 60).schedule[-1] == 60
    layers = [[step.layer for step in load_searched(NAME, n).steps] for n in (60, 64)]
    assert layers[0] == layers[1]
    with pytest.raises(PlanError, match="expected a searched plan: eos-miniature"):
        load_searched("eos-maxiature", 64)
    with pytest.raises(PlanError, match="1 token or more"):
        load_searched(NAME, 0)


def test_they_belong_to_the_packaged_weights():
    backbone = eos.load_backbone(locate("miniature"))
    mark = fingerprint(backbone.model)
    files = searched()[NAME]
    facts = [Plan.load(path).provenance["search"]["facts"]["backbone"] for path in files.values()]
    profile = Profile.load(next(iter(files.values())).parent / "profile.json")
    assert {*facts, profile.fingerprint} == {mark}
    found = named_plans([f"{NAME}@64,16"], backbone, visual_tokens=576)
    assert list(found) == [f"{NAME}@64", f"{NAME}@16"]
    theta = Theta.load(next(iter(files.values())).parent / "theta.json")
    assert theta.retain_schedule() == load_searched(NAME, 64).schedule


def test_the_packaged_profile_gives_a_schedule_for_any_budget():
    path = searched()[NAME][64].parent / "profile.json"
    profile = Profile.load(path)
    for budget, limit in ((100, 0.3), (10, 0.2), (5, 0.12)):
        scorers = {site: tuple(profile.ranking(site)) for site in profile.sites}
        sizes = {"num_layers": 12, "visual_tokens": 576, "dims": profile.dims, "text_tokens": 16}
        space = Space(**sizes, budget=budget, max_flops=limit, max_layers=3, scorers=scorers)
        steps = shortest_path(read_costs(profile, space), space)
        plan = space.plan(steps)
        assert plan.expected.final_tokens == budget
        assert 0.9 * limit < plan.expected.flops_ratio <= limit


def test_the_packaged_theta_becomes_the_packaged_plan():
    theta = Theta.load(searched()[NAME][64].parent / "theta.json")
    assert Plan.from_theta(theta, budget=64) == load_searched(NAME, 64)


@pytest.mark.parametrize("seed", [2, 3])
def test_the_other_seeds_are_there_too(seed):
    other = load_searched(f"{NAME}-seed-{seed}", 64)
    assert other.provenance["search"]["seed"] == seed
    assert other != load_searched(NAME, 64)
