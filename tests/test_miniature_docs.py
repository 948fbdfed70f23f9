"""docs/miniature.md says what the code says."""

import json
from pathlib import Path

import numpy as np
import pytest

from eos import Plan
from eos.evaluation.estimates import signed
from eos.evaluation.study import FULL_ROW, Study, compare
from eos.methods.registry import PRESETS
from eos.miniature.families import QUESTION_FAMILIES
from eos.miniature.gallery import gallery
from eos.miniature.world import EVALUATED, examples
from eos.report.page_text import prior_within
from eos.report.programme import as_results, glance

PAGE = Path(__file__).parent.parent / "docs" / "miniature.md"
RESULTS = PAGE.parent.parent / "src" / "eos" / "results" / "miniature"
BUDGETS = (64, 32, 16)
SEEDS = ("eos", "eos-2", "eos-3")
MAIN = Study.load(RESULTS / "studies" / "main.json")


def test_the_table_of_families_is_that_of_the_registry():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and line.endswith("% |")
    ]
    assert [row[0] for row in rows] == list(EVALUATED)
    for name, kind, group, imitates, looks, chance in rows:
        family = QUESTION_FAMILIES[name]
        assert (kind, group, imitates) == (family.kind, family.group, family.imitates)
        assert int(looks) == family.hops
        asked = [item.question.chance for item in examples("validation", name, count=200)]
        assert abs(float(chance.rstrip("%")) - 100 * np.mean(asked)) < 3.5


def compared_rows():
    """The rows of the README's budgets, the full model's first."""
    rows = [row for row in MAIN.rows if row.factors.get("budget") in BUDGETS]
    return [MAIN.row(FULL_ROW), *rows]


def test_3_the_table_in_the_readme_has_every_row_of_the_results():
    root = PAGE.parent.parent
    section = (root / "README.md").read_text(encoding="utf-8").split("## Does the search win?")[1]
    table = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("|")]
    rows = compared_rows()
    assert table == glance(as_results(MAIN, rows), BUDGETS).splitlines()  # no row is left out
    assert {row.method for row in rows} == {FULL_ROW, "eos", *PRESETS}
    assert {score.n for row in rows for score in row.families.values()} == {200}
    for budget in BUDGETS:
        plan = Plan.load(root / "results" / "miniature" / f"plan-{budget}.json")
        cost = MAIN.row(f"{SEEDS[0]}@{budget}").cost
        assert (cost.flops_ratio, cost.mean_tokens) == pytest.approx(
            (plan.expected.flops_ratio, plan.expected.mean_tokens)
        )


def test_every_seed_is_ahead_of_every_preset_at_equal_or_lower_cost():
    words = " ".join((PAGE.parent.parent / "README.md").read_text(encoding="utf-8").split())
    for budget in BUDGETS:
        limit = MAIN.row(f"sparsevlm-v2@{budget}").cost.flops_ratio
        found = [MAIN.row(f"{seed}@{budget}") for seed in SEEDS]
        assert all(row.cost.flops_ratio <= limit for row in found)
        rivals = [row for row in MAIN.rows if row.cost.flops_ratio <= limit and row.method != "eos"]
        assert len(rivals) > 30
        best = max(row.average.accuracy for row in rivals)
        assert min(row.average.accuracy for row in found) > best
        assert all(compare(found, row).low > 0 for row in rivals)
        # the margins that the README states are differences of these rows
        published = [row for row in rivals if row.method != "even"]
        nearest = max(published, key=lambda row: row.average.accuracy)
        below = compare(MAIN.row(FULL_ROW), found)
        assert f"{below.points:.1f} at {budget}".replace("-", "−") in words
        assert f"{below.low:.1f} to {below.high:.1f})".replace("-", "−") in words
        assert f"{compare(found, nearest).points:.1f} at {budget}" in words
        assert f"{compare(found, MAIN.row(f'even@{budget}')).points:.1f} at {budget}" in words


def test_the_costs_of_other_layers_are_those_of_the_study():
    study = Study.load(RESULTS / "studies" / "placement.json")
    text = (PAGE.parent / "search.md").read_text(encoding="utf-8")
    section = " ".join(text.split("**How much hangs on the layers**")[1].split("\n\n")[0].split())
    for name in ("last earlier", "last later", "central later", "no central", "layers of"):
        row = next(x for x in study.rows if x.name.startswith(name) and "equal" in x.name)
        difference = compare(study.row("eos@16"), row)
        assert f"{difference.points:.1f} (± {difference.stderr:.1f})" in section.replace(
            "points (", "("
        )


def test_the_plans_at_a_presets_flops_are_those_of_the_study():
    study = Study.load(RESULTS / "studies" / "cheaper.json")
    text = " ".join((PAGE.parent / "search.md").read_text(encoding="utf-8").split())
    for found, rival in (("cheap-64@16", "divprune@64"), ("cheap-32@16", "divprune@32")):
        own, other = study.row(found), study.row(rival)
        assert own.cost.flops_ratio <= other.cost.flops_ratio
        assert compare(own, other).low > 0
        for score in (own.average, other.average):
            assert f"{score.accuracy:.1f} ± {score.stderr:.1f}" in text


def test_the_demos_search_is_ahead_of_every_preset():
    report = (PAGE.parent / "miniature" / "demo.md").read_text(encoding="utf-8")
    rows = [cells for cells in cells_of(report) if "@" not in cells[0] and len(cells) == 5]
    assert len(rows) >= 22  # presets, the full model, the plans found
    accuracies = {
        cells[0].strip("`"): [float(cells[i].split()[0]) for i in (2, 4)] for cells in rows[1:]
    }
    best = accuracies.pop("eos")
    for name, others in accuracies.items():
        assert all(own > other for own, other in zip(best, others, strict=True)), name


def test_the_accuracies_of_the_page_are_those_printed():
    names, chances, scores = plain_rows("accuracy.md", ("run", "*chance*", "`full`"))
    printed = dict(zip(names[4:], zip(chances[4:], scores[4:], strict=True), strict=True))
    section = PAGE.read_text(encoding="utf-8").split("## What it answers")[1]
    shown = {
        cells[0].strip("*"): tuple(cells[1:])
        for cells in table_rows(section)
        if len(cells) == 3 and cells[0] not in ("family", "---")
    }
    assert shown == printed
    readme = (PAGE.parent.parent / "README.md").read_text(encoding="utf-8")
    assert f"answers {float(printed['average'][1].split()[0]):.0f}% of 15,000" in readme


def test_the_reductions_of_the_page_are_those_printed():
    report = (PAGE.parent / "miniature" / "reductions.md").read_text(encoding="utf-8")
    differences = {cells[0]: cells[-2] for cells in table_rows(report.split("| 95% |")[1])}
    shown = {}
    for name, *cells in table_rows(PAGE.read_text(encoding="utf-8")):
        if name.endswith("points from full"):
            for tokens, cell in zip((192, 64, 16), cells, strict=True):
                shown[f"{name.split(',')[0].rstrip('`')}@{tokens}`"] = cell
    assert {name: cell for name, cell in shown.items() if cell} == {
        name: cell for name, cell in differences.items() if "@" in name
    }


def table_rows(text):
    """The cells of all rows of all tables."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def plain_rows(page, firsts):
    """The rows of a page that begin so."""
    found = {
        cells[0]: cells
        for cells in reversed(
            table_rows((PAGE.parent / "miniature" / page).read_text(encoding="utf-8"))
        )
    }
    return [found[first] for first in firsts]


def cells_of(text):
    """The rows of all tables that begin with a name in code."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_gallery_shows_every_family_and_marks_wrong_answers(sibling, tmp_path):
    page = gallery(str(sibling), tmp_path / "gallery")
    text = page.read_text(encoding="utf-8")
    for family in EVALUATED:
        assert (page.parent / f"{family}.png").exists()
        assert f"![{family}]({family}.png)" in text
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ![")]
    assert len(rows) == len(EVALUATED)
    for *_, right, said in rows:
        assert (right == said) != (said == f" **{said.strip(' *')}** ")
    assert any(right != said for *_, right, said in rows)  # random weights are mostly wrong


COMPARED = json.loads((RESULTS / "comparisons.json").read_text(encoding="utf-8"))


def written(found):
    """An advantage with its interval, as the pages write it."""
    low, high = (f"{found[key]:+.1f}".replace("-", "−") for key in ("low", "high"))
    return f"{found['ahead']:+.1f}".replace("-", "−") + f" ({low} to {high})"


def test_what_is_said_of_other_searchers_is_what_was_compared():
    page = (PAGE.parent / "search.md").read_text(encoding="utf-8")
    section = page.split("### Against other searchers")[1].split("\n### ")[0]
    for name in ("tpe", "random"):
        (row,) = [line for line in section.splitlines() if line.startswith(f"| `method={name}`")]
        for budget in BUDGETS:
            found = COMPARED[f"searchers@{budget}"][name]
            assert f"{found['accuracy']:.1f} ± {found['stderr']:.1f} | {written(found)}" in row
    readme = " ".join((PAGE.parent.parent / "README.md").read_text(encoding="utf-8").split())
    for budget in BUDGETS:
        found = [COMPARED[f"searchers@{budget}"][name] for name in ("tpe", "random")]
        assert all(own["low"] > 0 for own in found)
        least, most = sorted(own["ahead"] for own in found)
        assert f"{least:.1f} to {most:.1f} points behind at {budget} tokens" in readme


def test_what_is_said_of_a_longer_random_search_is_what_was_compared():
    page = (PAGE.parent / "search.md").read_text(encoding="utf-8")
    section = page.split("**Against twenty times the compute**")[1].split("\n### ")[0]
    rows = {line.split("|")[1].strip(): line for line in section.splitlines() if "|" in line}
    for budget in BUDGETS:
        found = COMPARED[f"frontier@{budget}"]["random-20"]
        accuracy = f"{found['accuracy']:.1f} ± {found['stderr']:.1f}"
        assert f"| {accuracy} | {written(found)} |" in rows[str(budget)]
        assert found["low"] > -1.5  # within 1.5 points of it, for certain
    level = [b for b in BUDGETS if COMPARED[f"frontier@{b}"]["random-20"]["low"] <= 0]
    behind = COMPARED["frontier@16"]["random-20"]
    assert (level, behind["low"] > 0) == ([64, 32], True)
    readme = " ".join((PAGE.parent.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"level at 64 and 32 and {behind['ahead']:.1f} points behind at 16" in readme


def test_what_is_said_of_one_step_methods_is_what_was_compared():
    section = (PAGE.parent / "search.md").read_text(encoding="utf-8").split("## What it wins")[1]
    table = {cells[0].strip("`"): cells for cells in cells_of(section.split("\n### ")[0])}
    nearest = []
    for column, budget in enumerate(BUDGETS, start=3):
        rivals = COMPARED[f"one-step@{budget}"]
        for name, found in rivals.items():
            shown = table.get(name)
            assert shown is None or shown[column] == written(found)
        best = max(rivals, key=lambda name: rivals[name]["accuracy"])
        assert best in table  # the nearest is not left out
        nearest.append(f"{rivals[best]['ahead']:.1f}")
    readme = " ".join((PAGE.parent.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"come nearest, {nearest[0]}, {nearest[1]} and {nearest[2]} points behind" in readme


def test_what_is_said_of_other_budgets_and_another_model_is_what_was_compared():
    page = (PAGE.parent / "search.md").read_text(encoding="utf-8")
    section = page.split("### At other budgets, at lower cost")[1].split("\n## ")[0]
    rows = [
        line for line in section.splitlines() if line.startswith(("| 192", "| 128", "| 96", "| 16"))
    ]
    for row, found in zip(rows, COMPARED["other-budgets"].values(), strict=True):
        low, high = (f"{found[key]:.1f}".replace("-", "−") for key in ("low", "high"))
        accuracy = f"{found['accuracy']:.1f} ± {found['stderr']:.1f}"
        assert f"| {accuracy} | {found['ahead']:.1f} ({low} to {high}) |" in row
    words = " ".join(section.split())
    second = [COMPARED[f"second-model@{budget}"] for budget in BUDGETS]
    a, b, c = (f"{own['eos']['accuracy']:.1f}" for own in second)
    assert f"{a}, {b} and {c} at 64, 32 and 16 tokens" in words
    for own in second:
        full, low, high = (-own["full"][key] for key in ("ahead", "high", "low"))
        assert f"{full:.1f} ({abs(low):.1f} to {high:.1f})" in words
        presets = [x["accuracy"] for name, x in own.items() if name not in ("full", "eos")]
        assert f"{max(presets):.1f} (" in words


@pytest.mark.parametrize(
    ("study", "rival", "words"),
    [
        ("reproduce", "sparsevlm-v2-original@192", "{0} at 192 tokens ({1} to {2};"),
        ("larger", "tome-original@128", "{0} at 128 ({1} to {2})"),
        ("larger", "tome-original@96", "{0} at 96 ({1} to {2})"),
    ],
)
def test_what_is_said_of_larger_budgets_is_what_was_compared(study, rival, words):
    page = (PAGE.parent / "search.md").read_text(encoding="utf-8")
    section = " ".join(
        page.split("### At other budgets, at lower cost")[1].split("\n## ")[0].split()
    )
    rows = {row.name: row for row in Study.load(RESULTS / "studies" / f"{study}.json").rows}
    own = rows[f"eos@{rival.partition('@')[2]}"]
    found = compare(own, rows[rival])
    assert words.format(*(signed(x) for x in (found.points, found.low, found.high))) in section
    every = Study.load(RESULTS / "studies" / "larger.json")
    within = prior_within(every, own.cost.flops_ratio)
    assert max(within, key=lambda row: row.average.accuracy).name == rival  # none is left out


@pytest.mark.parametrize(("budget", "column"), [(64, 1), (16, 3)])
def test_every_step_from_the_papers_search_is_what_was_compared(budget, column):
    page = (PAGE.parent / "search.md").read_text(encoding="utf-8")
    section = page.split("### From the paper's search")[1].split("\n### ")[0]
    shown = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| ")
    ][1:]
    study = Study.load(RESULTS / "studies" / "method.json")
    steps = [row for row in study.rows if row.factors.get("budget") == budget]
    assert [row.factors["rung"] for row in steps] == list(range(len(shown)))
    for cells, row in zip(shown, steps, strict=True):
        assert cells[column] == f"{row.average.accuracy:.1f} ± {row.average.stderr:.1f}"
    for cells, row, before in zip(shown[1:], steps[1:], steps, strict=False):
        found = compare(row, before)
        gain = {"ahead": found.points, "low": found.low, "high": found.high}
        assert cells[column + 1] == written(gain)


@pytest.mark.parametrize(
    ("ahead", "behind", "words"),
    [
        ("eos@64", "fixed@64", "{0:.1f} points ({1:.1f} to {2:.1f}) below free layers"),
        ("fixed@64", "sparsevlm-v2-original@64", "{0:.1f} ({1:.1f} to {2:.1f}) above SparseVLM's"),
    ],
)
def test_what_is_said_of_fixed_layers_is_what_was_compared(ahead, behind, words):
    page = (PAGE.parent / "search.md").read_text(encoding="utf-8")
    section = " ".join(
        page.split("**Layers fixed, the rest searched**")[1].split("\n\n")[0].split()
    )
    rows = {row.name: row for row in Study.load(RESULTS / "studies" / "reproduce.json").rows}
    found = compare(rows[ahead], rows[behind])
    assert words.format(found.points, found.low, found.high) in section
    fixed = rows["fixed@64"].average
    assert f"{fixed.accuracy:.1f} ± {fixed.stderr:.1f} at 64 tokens" in section
