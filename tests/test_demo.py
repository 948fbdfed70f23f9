"""The demo: from a search to a table, a report and plans, on a model of random weights."""

import pytest

from eos import Plan
from eos.cli import main
from eos.commands import demo
from eos.evaluation.results import Results
from eos.methods.registry import PRESETS
from eos.report.demo import BUDGETS, league

QUICK = ["steps=2", "batch=2", "validation.samples=2", "scorers=[diversity,all-text]"]
QUICK += ["explore.profile_samples=2", "explore.paths=1", "explore.confirm_samples=2"]


@pytest.fixture(scope="module")
def shown(sibling, tmp_path_factory):
    """Run the demo with two rivals instead of all, twice: the second run finds all done."""
    out = tmp_path_factory.mktemp("demo")
    named = ["fastv@64,16", "prumerge+-original@65,17"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "rivals", lambda: named)
        asked = ["demo", f"backbone={sibling}", *QUICK, "--out", str(out), "--limit", "2"]
        assert main(asked) == 0
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        assert main(asked) == 0
    return out, before


def test_the_found_plan_is_saved_at_every_budget(shown):
    out, _ = shown
    plans = {budget: Plan.load(out / f"plan-{budget}.json") for budget in BUDGETS}
    assert {budget: plan.steps[-1].keep for budget, plan in plans.items()} == {64: 64, 16: 16}
    assert plans[64].steps != plans[16].steps


def test_the_report_has_every_run_and_the_code_to_use_the_plan(shown):
    out, _ = shown
    text = (out / "report.md").read_text(encoding="utf-8")
    results = Results.load(out / "eval" / "results.json")
    assert len(results.rows) == 7
    assert all(f"| `{row.name}` |" in text for row in results.rows)
    code = text.split("```python\n")[1].split("```")[0]
    assert (out / "plan-64.json").as_posix() in code
    compile(code, "report", "exec")


def test_a_second_run_changes_nothing(shown):
    _, before = shown
    kept = {path: content for path, content in before.items() if path.name != "env.json"}
    assert kept == {path: path.read_bytes() for path in kept}
    assert before


def test_rows_are_ordered_by_budget_then_accuracy(shown):
    out, _ = shown
    results = Results.load(out / "eval" / "results.json")
    ordered, lines = league(results)
    names = [row.name for row in ordered.rows]
    assert names[0] == "full"
    assert lines == [0, 3]
    for part in (ordered.rows[1:4], ordered.rows[4:]):
        found = [row.average.accuracy for row in part]
        assert found == sorted(found, reverse=True)
    assert {row.cost.final_tokens for row in ordered.rows[1:4]} == {64, 65}


def test_every_preset_is_a_rival_at_every_budget():
    named = [spec.split("@") for spec in demo.rivals()]
    assert {name for name, _ in named} == set(PRESETS)
    assert len(named) == len(BUDGETS) * len(PRESETS)
    assert {int(budget) for name, budget in named if name == "prumerge+-original"} == {65, 17}
    assert {int(budget) for name, budget in named if name != "prumerge+-original"} == {64, 16}
