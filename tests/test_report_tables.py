"""Tables of a report: exact text from hand-worked numbers, what is bold, and what is kept apart."""

import json
from itertools import pairwise
from math import inf

import pytest

from eos.errors import ConfigError
from eos.evaluation.study import compare
from eos.methods.registry import METHODS
from eos.report.comparison import difference_cell, leader
from eos.report.reproduction import Reproduction, by_setting, load
from eos.report.sheet import Block, Sheet, SheetCell, escape, latex, markdown, plain
from eos.report.tables import budgets, operators, studies
from tests import reports

FULL = {"presence": (1,) * 12, "attribute": (1, 1, 1, 0) * 3}
GOOD = {"presence": (1,) * 12, "attribute": (1, 1, 0, 0) * 3}
BAD = {"presence": (0,) * 12, "attribute": (1, 1, 0, 0) * 3}


def small(good=GOOD, bad=BAD, **changes):
    """A study of three runs on two families of twelve questions."""
    rows = [
        reports.row("full", "full", FULL, FULL),
        reports.row("eos@4", "eos", good, FULL, budget=4, searched=True),
        reports.row("sparsevlm-v2@4", "sparsevlm-v2", bad, FULL, budget=4, flops=0.25),
    ]
    labels = ["tab:main_retainsweep", "tab:app_low_retain"]
    return reports.study("main", rows, labels=labels, **changes)


def of(*found):
    return Reproduction({f"{place}.json": study for place, study in enumerate(found)})


def test_markdown_has_the_hand_worked_numbers():
    (sheet,) = budgets.main_results(of(small()), "tab:main_retainsweep")
    lines = markdown(sheet).splitlines()
    assert lines[2:9] == [
        "**4 final tokens**",
        "",
        "| method | FLOPs | mean tokens | presence | attribute | average |",
        "|---|---:|---:|---:|---:|---:|",
        "| `full` | 1.000 | 18.0 | 100.0 ± 0.0 | 75.0 ± 13.1 | 87.5 ± 6.5 |",
        # attribute: 6 of 12, standard deviation 52.2, so ± 15.1; average: (0, 15.1) / 2
        "| `eos` | 0.500 | 6.0 | **100.0 ± 0.0** | 50.0 ± 15.1 | **75.0 ± 7.5** |",
        "| `sparsevlm-v2` | 0.250 | 6.0 | 0.0 ± 0.0 | 50.0 ± 15.1 | 25.0 ± 7.5 |",
    ]
    assert "n = 12 questions a family" in markdown(sheet)


def test_latex_has_the_same_numbers():
    (sheet,) = budgets.main_results(of(small()), "tab:main_retainsweep")
    text = latex(sheet)
    assert r"\label{tab:main_retainsweep}" in text
    assert (
        r"\texttt{eos} & 0.500 & 6.0 & \textbf{100.0 $\pm$ 0.0} & 50.0 $\pm$ 15.1 & "
        r"\textbf{75.0 $\pm$ 7.5} \\"
    ) in text
    heads = r"&& & \multicolumn{2}{c}{prior} & \multicolumn{1}{c}{averages} \\"
    assert heads in text
    assert r"\cmidrule(lr){4-5}\cmidrule(lr){6-6}" in text
    assert text.count(r"\midrule") == 2


def test_latex_escapes_what_it_must():
    assert escape("a_b & 5% {γ} − #1") == r"a\_b \& 5\% \{$\gamma$\} $-$ \#1"
    sheet = Sheet("x", "A_B", ["head"], [Block("", [[plain("1|2_*")]])])
    assert r"\textbf{A\_B.}" in latex(sheet)
    assert r"| 1\|2\_\* |" in markdown(sheet)


def test_only_a_certain_lead_is_bold():
    rows = small().rows
    assert leader(rows, ["presence"]) == "eos@4"
    assert leader(rows, ["attribute"]) is None  # level
    # control: one question more of twelve is a lead, within its interval
    near = small(good={**GOOD, "presence": (1, *(0,) * 11)}, bad=BAD).rows
    assert leader(near, ["presence"]) is None
    assert compare(near[1], near[2], ["presence"]).points == pytest.approx(100 / 12)


def test_a_few_questions_decide_nothing():
    few = [{name: scores[:4] for name, scores in own.items()} for own in (FULL, GOOD, BAD)]
    rows = [
        reports.row("full", "full", few[0], few[0]),
        reports.row("eos@4", "eos", few[1], few[0], budget=4, searched=True),
        reports.row("sparsevlm-v2@4", "sparsevlm-v2", few[2], few[0], budget=4),
    ]
    assert compare(rows[1], rows[2], ["presence"]).low == 100.0  # all four alike: no spread
    assert leader(rows, ["presence"]) is None
    assert not difference_cell(rows[1], rows[2], ["presence"]).bold


def test_the_full_model_and_rows_of_the_same_method_do_not_compete():
    full, eos, other = small(good=BAD).rows
    assert leader([full, eos, other], ["presence"]) is None  # the full model is ahead of both
    twin = reports.row("eos-2@4", "eos", GOOD, FULL, budget=4, searched=True)
    assert leader([full, twin, eos.model_copy(update={"name": "eos@4"})], ["presence"]) is None
    assert leader([full, twin, other], ["presence"]) == "eos-2@4"  # the control


def test_margins_stand_below_the_block_of_aggressive_budgets():
    (sheet,) = budgets.aggressive(of(small()), "tab:app_low_retain")
    last = sheet.blocks[0].rows[-1]
    assert [cell.text for cell in last[:1] + last[3:]] == [
        "eos − sparsevlm-v2",
        "+100.0 ± 0.0",
        "0.0 ± 0.0",
        "+50.0 ± 0.0",
    ]
    assert [cell.bold for cell in last[3:]] == [True, False, True]


@pytest.mark.parametrize(
    "change",
    [{"backbone": "other"}, {"fingerprint": "9"}, {"seed": 2}, {"split": "x"}, {"version": "2.0"}],
)
def test_other_settings_get_blocks_that_name_the_difference(change):
    (sheet,) = budgets.main_results(of(small(), small(**change)), "tab:main_retainsweep")
    assert len(sheet.blocks) == 2
    assert all("4 final tokens; " in block.heading for block in sheet.blocks)
    assert sheet.blocks[0].heading != sheet.blocks[1].heading
    (value,) = change.values()
    assert str(value) in sheet.blocks[1].heading
    assert [len(block.rows) for block in sheet.blocks] == [3, 3]  # the full model in each


def test_one_setting_is_one_block():
    again = small().model_copy(update={"rows": small().rows[:2]})
    (sheet,) = budgets.main_results(of(small(), again), "tab:main_retainsweep")
    assert [block.heading for block in sheet.blocks] == ["4 final tokens"]
    assert len(by_setting([small(), again])) == 1


def test_rows_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match=r"eos@4.*two that differ"):
        budgets.main_results(of(small(), small(good=BAD)), "tab:main_retainsweep")


def test_other_families_get_a_table_of_their_own():
    rows = [reports.row("full", "full", {"presence": (1, 0)}, {"presence": (1, 0)})]
    rows.append(reports.row("eos@4", "eos", {"presence": (1, 0)}, {"presence": (1, 0)}, budget=4))
    other = reports.study("main", rows, labels=["tab:main_retainsweep"])
    sheets = budgets.main_results(of(small(), other), "tab:main_retainsweep")
    assert [len(sheet.heads) for sheet in sheets] == [6, 5]


def test_a_point_that_scores_every_question_alike_is_exact():
    rows = [
        reports.row("full", "full", FULL, FULL),
        reports.row("tome-original@4", "tome-original", GOOD, FULL, budget=4),
        reports.row("tome@4", "tome", GOOD, FULL, budget=4),
        reports.row("sparsevlm-v2-original@4", "sparsevlm-v2-original", GOOD, FULL, budget=4),
        reports.row("sparsevlm-v2@4", "sparsevlm-v2", BAD, FULL, budget=4),
        reports.row("eos@4", "eos", GOOD, FULL, budget=4, searched=True),
    ]
    found = of(reports.study("reproduce", rows, labels=["tab:reproduce"]))
    (sheet,) = studies.reproduced(found, "tab:reproduce")
    match = {row[0].text: row[-1].text for block in sheet.blocks for row in block.rows}
    assert match["tome@4"] == "exact"
    assert match["sparsevlm-v2@4"] == "−50.0 ± 0.0 against sparsevlm-v2-original"
    assert match["eos@4"] == "+50.0 ± 0.0 against sparsevlm-v2"
    assert [block.heading for block in sheet.blocks][1] == "The authors' own operators"


def test_placements_are_compared_with_the_searched_one():
    found = Reproduction({s.name: s for s in reports.made_up(20)})
    (sheet,) = studies.placements(found, "tab:app_layer_perturb")
    first = [row[0].text for row in sheet.blocks[0].rows]
    assert first == ["full model", "{0, 3, 8}", "{0, 1, 8}", "{0, 8}"]
    assert [row[2].text == "–" for row in sheet.blocks[0].rows] == [True, True, False, False]
    assert sheet.blocks[0].rows[2][-1].text == "central earlier by 2, FLOPs as placed"


def test_constraints_are_active_only_when_exceeded():
    def cells(study):
        (sheet,) = operators.constraints(of(study), "tab:onesided_constraints")
        return [row[-1].text for row in sheet.blocks[0].rows]

    own = reports.plan([0, 3, 8], [12, 8, 4])
    level = {"plan": own, "cost": reports.cost(4)}
    rows = tuple(row.model_copy(update=level) for row in small().rows)
    cheap = small().model_copy(update={"rows": rows})
    assert cells(cheap) == ["none"]
    assert cells(small()) == ["FLOPs"]  # control: 0.5 where sparsevlm-v2 takes 0.25


def describe_methods():
    """Describe every preset as data, which the package holds so that reports need no torch."""
    return [
        {
            "method": method,
            "paper": own.paper,
            "preset": preset.name,
            "score": preset.score,
            "layers": list(preset.layers),
            "published": {str(label): list(kept) for label, kept in preset.published.items()},
            "operator": as_in_plans(preset.steps([0], [1])[0]["operator"]),
        }
        for method, own in METHODS.items()
        for preset in own.presets
    ]


def as_in_plans(operator):
    """An operator with its kind, infinities as text."""
    numbers = {key: str(x) if x in (inf, -inf) else x for key, x in operator.items()}
    return {"kind": "unified", **numbers}


def test_methods_are_those_of_the_package():
    stored = json.loads(operators.METHODS.read_text(encoding="utf-8"))
    assert stored == describe_methods()
    (sheet,) = operators.unification(Reproduction({}), "tab:unification")
    rows = {row[0].text: [cell.text for cell in row] for row in sheet.blocks[0].rows}
    assert rows["fastv"][1:9] == ["1", "64: 30", "last-query", "0", "–", "–", "0", "0"]
    assert rows["tome"][4:7] == ["1", "0", "−inf"]
    assert rows["eos"][-1] == "yes"


def test_tables_are_ordered_best_first_with_the_full_model_ahead():
    found = Reproduction({s.name: s for s in reports.made_up(20)})
    (sheet,) = budgets.main_results(found, "tab:main_retainsweep")
    for block in sheet.blocks:
        assert block.rows[0][0] == SheetCell("full", code=True)
        averages = [float(row[-1].text.split(" ±")[0]) for row in block.rows[1:]]
        assert all(better >= worse for better, worse in pairwise(averages))


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(ConfigError, match="eos reproduce"):
        load([tmp_path])
    (tmp_path / "programme.json").write_text('{"schema": "eos.nothing/1"}')
    with pytest.raises(ConfigError, match=r"eos.nothing/1"):
        load([tmp_path])


if __name__ == "__main__":
    data = json.dumps(describe_methods(), indent=1, ensure_ascii=False, allow_nan=False)
    operators.METHODS.write_text(data + "\n", encoding="utf-8")
