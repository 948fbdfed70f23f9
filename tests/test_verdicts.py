"""Verdicts on the paper's claims follow from the answers, and turn with them."""

from pathlib import Path

import pytest

from eos.evaluation.verification import Check, Verification
from eos.report.build import summary_page
from eos.report.reproduction import Reproduction
from eos.report.verdicts import as_markdown, verdicts
from tests import reports

N = 200


def judged(*files):
    found = verdicts(Reproduction({Path(str(place)): x for place, x in enumerate(files)}))
    return {verdict.claim: verdict for verdict in found}


def only(*files):
    (found,) = judged(*files).values()
    return found


def swept(rates, *, values=(0.0, 0.5, 1.0)):
    """A sweep whose first value of each parameter has a rate of its own."""
    rows = [reports.full_row(N)]
    for name in reports.SWEPT:
        for value in values:
            rate = rates.get(name, 0.8) if value == values[0] else 0.8
            factors = {"parameter": name, "value": value}
            rows.append(reports.made(f"{name}={value}@4", "swept", rate, 4, n=N, factors=factors))
    return reports.study("operator", rows)


def rescaled(rate):
    searched = reports.found_row(4, N)
    scores = searched.scores if rate is None else reports.drawn(rate, N, "one")
    full = reports.full_row(N)
    one = reports.row("eos-one@4", "eos-one", scores, full.scores, budget=4, searched=True)
    return reports.study("budgets", [full, searched, one])


def moved(*, near, far):
    rows = [reports.full_row(N), reports.found_row(4, N)]
    for layer, rate in {2: near, 3: 0.8, 4: near, 7: far}.items():
        factors = {"parameter": "l2", "value": layer}
        rows.append(reports.made(f"l2={layer}@4", "swept", rate, 4, n=N, factors=factors))
    return reports.study("layers", rows)


def test_without_studies_nothing_is_judged():
    assert judged() == {}


@pytest.mark.parametrize(("discrepancy", "holds"), [(1e-12, True), (1e-3, False)])
def test_corners_hold_within_their_tolerance(discrepancy, holds):
    check = Check(corner="merge", dtype="float64", cases=1, discrepancy=discrepancy, tolerance=1e-6)
    found = only(Verification(listing=(check,), limits=(), near_ties=0, stand_ins=()))
    assert found.holds is holds
    assert ("merge" in found.text) is not holds


def test_the_main_comparison_is_judged_by_paired_intervals():
    study = reports.study("main", reports.main_rows(N))
    found = judged(study)
    ahead = "Found plans are ahead of every prior method of equal or lower FLOPs"
    assert found[ahead].holds is True
    assert found["The margin grows as the budget shrinks"].holds is True
    swapped = {"eos": "fastv", "fastv": "eos"}
    rows = [
        row.model_copy(update={"method": swapped.get(row.method, row.method)}) for row in study.rows
    ]
    assert judged(reports.study("main", rows))[ahead].holds is False


def test_a_rival_that_keeps_more_at_lower_cost_counts():
    full, own = reports.full_row(N), reports.found_row(4, N)
    rival = reports.made("fastv@8", "fastv", 0.95, 8, n=N, flops=0.4)
    found = judged(reports.study("main", [full, own, rival]))
    (ahead,) = [x for claim, x in found.items() if claim.startswith("Found plans")]
    assert ahead.holds is False
    assert "fastv@8" in ahead.text


def test_hybrids_are_counted_by_their_operators():
    claim = "Hybrid operators are found"
    rows = [reports.full_row(N), reports.found_row(4, N)]
    assert judged(reports.study("main", rows))[claim].holds is True
    prune = reports.plan([0, 8], [8, 4], omegas=[dict.fromkeys(reports.OMEGA, 0.0)] * 2)
    pruned = rows[1].model_copy(update={"plan": prune})
    assert judged(reports.study("main", [rows[0], pruned]))[claim].holds is False


@pytest.mark.parametrize(
    ("rates", "holds"),
    [
        ({"gamma": 0.3, "tau": 0.4}, True),
        ({"rho": 0.3, "tau": 0.4}, False),
        ({}, None),
    ],
)
def test_parameters_are_ranked_by_what_they_change(rates, holds):
    assert only(swept(rates)).holds is holds


@pytest.mark.parametrize(("rate", "holds"), [(0.3, True), (0.99, False), (None, None)])
def test_alignment_is_judged_by_all_weights_against_none(rate, holds):
    rows = [
        reports.made(row.name, "paper", rate, int(row.factors["budget"]), n=N, factors=row.factors)
        if rate is not None and row.factors.get("lambda_a") == 0
        else row
        for row in reports.alignment_rows(N)
    ]
    assert (
        only(reports.study("alignment", rows)).holds is holds
    )  # None: 3 points, too few questions


@pytest.mark.parametrize(
    ("near", "far", "holds"), [(0.82, 0.5, True), (0.6, 0.5, False), (0.82, 0.95, False)]
)
def test_a_plateau_is_flat_near_and_falls_far(near, far, holds):
    assert only(moved(near=near, far=far)).holds is holds


@pytest.mark.parametrize(("rate", "holds"), [(None, True), (0.4, False)])
def test_one_configuration_serves_all_budgets_if_rescaling_costs_nothing(rate, holds):
    assert only(rescaled(rate)).holds is holds


def test_the_summary_has_verdicts_and_tables(tmp_path):
    study = reports.study("main", reports.main_rows(N))
    table = tmp_path / "main.md"
    table.write_text("# Main results\n\n| a |\n", encoding="utf-8")
    page = summary_page(Reproduction({Path("main.json"): study}), [table])
    assert as_markdown(list(judged(study).values())) in page
    assert "\n## Main results\n" in page
    assert "Not judged, since their studies are missing: The corners are recovered;" in page
    assert "eos ablate main" in page


def test_a_lead_within_its_error_is_undecided():
    own = reports.found_row(4, N)
    rival = own.model_copy(update={"name": "fastv@4", "method": "fastv", "searched": False})
    found = judged(reports.study("main", [reports.full_row(N), own, rival]))
    (ahead,) = [x for claim, x in found.items() if claim.startswith("Found plans")]
    assert ahead.holds is None


def test_larger_budgets_count_on_the_study_with_the_most_questions():
    def rows(n, rate):
        rival = reports.made("sparsevlm-v2-original@10", "sparsevlm-v2-original", 0.7, 10, n=n)
        own = reports.made("eos@10", "eos", rate, 10, n=n, searched=True)
        return [reports.full_row(n), rival, own]

    main, few = reports.study("main", reports.main_rows(N)), reports.study("larger", rows(10, 0.7))
    claim = "Found plans are ahead of every prior method of equal or lower FLOPs"
    assert judged(main)[claim].holds is True
    assert judged(main, few)[claim].holds is None  # the control: ten questions do not tell
    decided = judged(main, few, reports.study("reproduce", rows(N, 0.9)))[claim]
    assert decided.holds is True
    assert decided.text.startswith("at 10 ")
