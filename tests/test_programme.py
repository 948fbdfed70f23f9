"""The programme's pieces: what they are made from, in which order, which rows studies have."""

from dataclasses import replace

import pytest

from eos import Plan
from eos.commands.programme import scope_of
from eos.errors import ConfigError
from eos.evaluation.reproduction import PieceRecord
from eos.evaluation.tasks import find_task
from eos.methods.registry import PRESETS
from eos.programme.assembly import assemble, command_of
from eos.programme.catalogue import ABLATIONS, STUDIES
from eos.programme.context import ModelInfo, canonical, run_name
from eos.programme.pieces import Piece, digests, is_done, record_path, with_needs
from eos.programme.rows import StudyInputs
from eos.programme.running import ProgrammeProgress
from eos.programme.scope import BUDGETS, Scope
from eos.programme.searches import config_of, searches
from eos.programme.sweeps import central, moved, placed, with_parameter, without
from eos.runs.files import write_atomically
from eos.space.searched import load_searched
from eos.space.specs import Target

PLAN = load_searched("eos-miniature", 16)
SIZES = {"visual_tokens": PLAN.visual_tokens, "num_layers": PLAN.num_layers}
TARGET = Target(**SIZES, dims=PLAN.dims, text_tokens=PLAN.text_tokens)
INFO = ModelInfo(
    fingerprint="f", backbone="b", **SIZES, dims=PLAN.dims, text_tokens=16, environment={}
)
GIVEN = ("eos-miniature@64,32,16", "eos-miniature-seed-2", "eos-miniature-seed-3")


def inputs(scope):
    """Plans of the package stand for what searches find."""
    plans = {
        name: load_searched("eos-miniature", spec.budget) for name, spec in searches(scope).items()
    }
    return StudyInputs(scope, plans, TARGET)


def piece(name, *needs, **settings):
    """Make a piece that does nothing."""
    return Piece(name, "study", f"{name}.json", print, settings=settings, needs=needs)


def test_a_digest_follows_from_settings_model_and_what_is_needed():
    pieces = [piece("a", x=1), piece("b", "a"), piece("c")]
    found = digests(pieces, model="m")
    assert found == digests(pieces, model="m")
    changed = digests([piece("a", x=2), *pieces[1:]], model="m")
    assert [name for name in found if found[name] != changed[name]] == ["a", "b"]
    assert not set(found.values()) & set(digests(pieces, model="other").values())


def test_a_piece_stands_after_what_it_needs():
    with pytest.raises(ConfigError, match="before b"):
        digests([piece("b", "a"), piece("a")], model="m")
    chosen = with_needs([piece("a"), piece("b", "a"), piece("c")], ["b"])
    assert [x.name for x in chosen] == ["a", "b"]


def test_what_is_left_follows_from_what_others_of_the_kind_took(tmp_path):
    made = [Piece(name, "study", f"{name}.json", print, work=10.0) for name in "abc"]
    made[2] = replace(made[2], needs=("a",))
    progress = ProgrammeProgress(tmp_path, made, digests(made, model="m"), jobs=2)
    progress.find_done()
    assert progress.seconds_left() == 15.0
    assert [progress.ready(x) for x in made] == [True, True, False]
    progress.done["a"] = 20.0  # twice as long as expected
    progress.running["b"] = (1, 2)
    assert progress.expected_seconds() == {"b": 20.0, "c": 20.0}
    assert progress.seconds_left() == (10 + 20) / 2
    assert [progress.ready(x) for x in made] == [False, False, True]


def test_a_piece_is_done_when_file_and_record_agree(tmp_path):
    own = piece("a", x=1)
    digest = digests([own], model="m")["a"]
    assert not is_done(tmp_path, own, digest)
    record = PieceRecord(name="a", kind="study", file="a.json", inputs=digest, seconds=1.0)
    write_atomically(record_path(tmp_path, "a"), record.model_dump_json())
    assert not is_done(tmp_path, own, digest)  # without its file
    (tmp_path / "a.json").write_text("{}")
    assert is_done(tmp_path, own, digest)
    assert not is_done(tmp_path, own, digests([piece("a", x=2)], model="m")["a"])


@pytest.mark.parametrize("quick", [False, True])
def test_all_pieces_have_names_of_their_own_and_an_order(quick):
    scope = scope_of(None, {}, quick=quick)
    pieces = assemble(scope, INFO)
    names = [x.name for x in pieces]
    assert len(set(names)) == len(names)
    assert set(digests(pieces, model="m")) == set(names)
    files = [x.file for x in pieces if x.kind != "answers"]
    assert len(set(files)) == len(files)
    assert {"profile.json", "trajectory.json", "examples.json", "verify.json"} <= set(files)


def test_answers_to_a_family_are_given_one_study_after_the_other():
    pieces = [x for x in assemble(Scope(), INFO) if x.kind == "answers"]
    for family in find_task("mini").families:
        own = [x for x in pieces if x.name.endswith(f"/{family}")]
        assert [x.after for x in own] == [(), *((x.name,) for x in own[:-1])]


def test_only_the_main_comparison_of_other_questions_has_another_digest():
    few, many = (assemble(Scope(limit=limit), INFO) for limit in (2, 3))
    before, after = digests(few, model="m"), digests(many, model="m")
    changed = {name.split("/")[0] for name in before if before[name] != after[name]}
    assert changed == {"answers", "study", "examples"}


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_rows_of_different_names_with_plans_that_fit(name):
    scope = Scope(searches=GIVEN)
    spec = STUDIES[name]
    found = inputs(scope)
    assert set(spec.searches(scope)) <= set(found.plans)
    needed = {own: found.plans[own] for own in spec.searches(scope)}
    rows = spec.rows(StudyInputs(scope, needed, TARGET))
    assert len({row.name for row in rows}) == len(rows) > 1
    for row in rows:
        assert row.plan.num_layers == TARGET.num_layers
        assert row.factors["budget"] in BUDGETS


def test_two_studies_have_every_method_at_every_budget():
    found = inputs(Scope())
    main, larger = (STUDIES[name].rows(found) for name in ("main", "larger"))
    for budget in BUDGETS:
        own = [row for row in [*main, *larger] if row.factors["budget"] == budget]
        assert {row.method for row in own} == {"eos", *PRESETS}
    seeds = [row.factors["seed"] for row in main if row.searched and row.factors["budget"] == 64]
    assert seeds == [1, 2, 3]
    assert {row.factors["budget"] for row in larger} == {192, 128, 96}


def test_a_programme_without_larger_budgets_has_no_study_of_them():
    few = Scope(budgets=(64, 16), sweep=(64,))
    assert "study/larger" not in [x.name for x in assemble(few, INFO)]
    assert "study/larger" in [x.name for x in assemble(Scope(), INFO)]


def test_every_ablation_is_made_of_studies():
    assert {study for own in ABLATIONS.values() for study in own} <= set(STUDIES)
    for name, own in ABLATIONS.items():
        pieces = assemble(Scope(), INFO, studies=own)
        assert [x.name for x in pieces if x.kind == "study"] == [f"study/{x}" for x in own]
        assert command_of(Scope(), own[0]).startswith(f"eos ablate {name} ")


def test_searches_that_are_given_need_no_profile():
    scope = Scope(searches=GIVEN)
    pieces = {x.name: x for x in assemble(scope, INFO, studies=["seeds"])}
    assert not any(name.startswith("search/profile") for name in pieces)
    free = {x.name: x for x in assemble(Scope(), INFO, studies=["seeds"])}
    assert "search/profile-1" in free
    names = [name for name in pieces if name.startswith("search/")]
    assert digests(pieces.values(), model="m") != digests(free.values(), model="m")
    assert len(names) == 3 * 3


def test_a_search_has_the_configuration_of_its_lever():
    found = searches(Scope())
    raters = config_of(Scope(), found["raters@16"])
    assert (raters.scorers, raters.operators, raters.reduces_input) == (
        ("text-raters",),
        False,
        False,
    )
    assert (raters.budget, raters.seed, raters.data.seed) == (16, 1, 1)
    assert config_of(Scope(), found["ce-off@64"]).objective.ce_weight == 0
    assert config_of(Scope(), found["eos-2@64"]).seed == 2
    assert config_of(Scope(), found["align-0.5@64"]).method == "paper"


def test_reducers_move_and_counts_stay_in_order():
    layers = [step.layer for step in PLAN.steps]
    assert layers == [-1, 0, 8]
    found = moved(PLAN, 0, 4)
    assert [step.layer for step in found.steps] == [0, 4, 8]
    assert [step.keep for step in found.steps] == [step.keep for step in PLAN.steps]
    assert found.steps[1].score == PLAN.steps[0].score
    assert moved(PLAN, 0, 8) is None  # taken
    assert moved(PLAN, 2, PLAN.num_layers - 1) is None  # nothing attends after the last layer
    late = PLAN.steps[2].model_copy(update={"score": "text-raters"})
    needs_text = PLAN.model_copy(update={"steps": (*PLAN.steps[:2], late)})
    assert placed(needs_text, [2, 0, -1]) is None
    assert [x.layer for x in without(PLAN, 1).steps] == [-1, 8]
    assert without(PLAN, 2) is None


def test_a_parameter_of_the_central_reducer_is_set():
    found = with_parameter(PLAN, "tau", 0.5)
    place = central(PLAN)
    assert found.steps[place].operator.tau == 0.5
    assert found.steps[0] == PLAN.steps[0]
    assert with_parameter(Plan.preset("tome-original", budget=64), "tau", 0.5) is None


def test_equal_plans_have_one_name_whatever_they_are_called():
    pruned = Plan.preset("sparsevlm-v2", budget=64)
    other = with_parameter(pruned, "tau", 0.77)
    assert run_name(pruned) == run_name(other) != run_name(PLAN)
    assert canonical(pruned) == canonical(other)
    # τ says which tokens take over the attention of the dropped ones
    assert run_name(with_parameter(PLAN, "tau", 0.77)) != run_name(PLAN)
    plain = [x.operator.model_copy(update={"mass": 0.0}) for x in PLAN.steps]
    steps = [x.model_copy(update={"operator": y}) for x, y in zip(PLAN.steps, plain, strict=True)]
    assert run_name(PLAN.model_copy(update={"steps": tuple(steps)})) != run_name(PLAN)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"budgets": (16, 64)}, "largest first"),
        ({"sweep": (5,)}, "some of the budgets"),
        ({"searches": ("a",) * 4}, "at most one a seed"),
        ({"presets": ("nobody",)}, "found 'nobody'"),
    ],
)
def test_a_scope_that_contradicts_itself_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        Scope(**given)


def test_sweeps_answer_a_part_of_the_questions_unless_they_are_few_anyway():
    def limits(scope):
        pieces = [x for x in assemble(scope, INFO) if x.kind == "answers"]
        return {x.name.split("/")[1]: x.settings["limit"] for x in pieces}

    whole = limits(Scope(limit=100))
    assert (whole["main"], whole["operator"]) == (100, 20)
    folders = {x.file for x in assemble(Scope(), INFO) if x.kind == "answers"}
    assert len(folders) == 3 * len(find_task("mini").families)
    assert set(limits(Scope(quick=True, limit=10)).values()) == {10}
