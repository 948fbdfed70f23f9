"""A method is one file: found by being there, with everything that plans name."""

from pathlib import Path

import pytest

import eos.methods
from eos import Plan, PlanError
from eos.methods.registry import METHODS, OPERATORS, PRESETS, SCORERS, find_methods, named
from eos.operator.combine import OwnOperator
from eos.searching.planner import SEARCHED

FOLDER = Path(eos.methods.__file__).parent
NEW = """
from eos.methods import Method, Preset
from eos.operator.scorers import Scorer, attention_received

METHOD = Method(
    paper="none",
    scorers={"new": Scorer(attention_received, rows="last")},
    presets=(Preset(name="new", what="New.", score="new", layers=(2,), published={64: (64,)}),),
)
"""


def test_every_file_is_a_method():
    files = {path.stem for path in FOLDER.glob("*.py")}
    assert set(METHODS) == files - {"__init__", "registry"}
    assert all(method.scorers or method.presets for method in METHODS.values())


def test_a_new_file_is_found_without_being_named_anywhere(tmp_path, monkeypatch):
    (tmp_path / "a_new_method.py").write_text(NEW)
    assert "a_new_method" not in find_methods()
    monkeypatch.setattr(eos.methods, "__path__", [*eos.methods.__path__, str(tmp_path)])
    found = find_methods()["a_new_method"]
    assert list(found.scorers) == [preset.name for preset in found.presets] == ["new"]


def test_two_methods_cannot_share_a_name():
    assert named([("a", 1), ("b", 2)]) == {"a": 1, "b": 2}
    with pytest.raises(AssertionError, match="two methods define 'a'"):
        named([("a", 1), ("a", 2)])


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_presets_name_what_exists(method):
    assert method.title or not method.paper.startswith("arXiv") or "(" in method.paper
    for preset in method.presets:
        assert preset.score in SCORERS
        assert all(len(preset.layers) == len(counts) for counts in preset.published.values())
        assert bool(preset.published) != bool(preset.rule)
        if isinstance(preset.operator, OwnOperator):
            assert OPERATORS[preset.operator.kind] is preset.operator


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("budget", [16, 17, 64, 65])
def test_a_declared_constraint_is_what_plans_hold(name, budget):
    nearest = PRESETS[name].nearest_budget(budget)
    assert budget <= nearest == PRESETS[name].nearest_budget(nearest)
    assert Plan.preset(name, budget=nearest).expected.final_tokens == nearest
    if nearest != budget:
        with pytest.raises(PlanError, match=f"found {budget}$"):
            Plan.preset(name, budget=budget)


def test_some_method_has_a_constraint():
    assert PRESETS["prumerge+-original"].nearest_budget(64) == 65
    assert PRESETS["prumerge+"].nearest_budget(64) == 64


def test_a_default_search_uses_scorers_of_all_families():
    assert all("vision" not in SCORERS[name].needs for name in SEARCHED)
    assert {"random", "cls-attention"}.isdisjoint(SEARCHED)
