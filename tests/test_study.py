"""Studies: made from evaluations, read back equal, rows compared question by question."""

import subprocess
import sys
from math import sqrt

import pytest

from eos import Plan, evaluate
from eos.commands.validate import schemas, validate_file
from eos.errors import ConfigError
from eos.evaluation.estimates import Z95
from eos.evaluation.results import FamilyInfo, make_row
from eos.evaluation.studies import RowSpec, make_study
from eos.evaluation.study import Study, StudyRow, compare
from eos.sizes import Expected

COST = Expected(
    final_tokens=64, mean_tokens=96.0, flops_ratio=0.2, kv_bytes_ratio=0.2, text_tokens=16
)
TORCH_FREE = ["study", "reproduction", "verification", "results", "estimates"]


def row(name, **scores):
    """Make a row with the scores of its families."""
    info = {
        family: FamilyInfo(group="all", imitates="", n=len(own), chance=None)
        for family, own in scores.items()
    }
    made = make_row(name, COST, scores=scores, full=None, families=info)
    return StudyRow(**dict(made), method=name, plan=None, scores=scores)


@pytest.fixture(scope="module")
def folders(sibling, tmp_path_factory):
    """Evaluate two families in folders of their own, as a programme does."""
    out = tmp_path_factory.mktemp("families")
    for family in ("digit", "presence"):
        evaluate(sibling, ["fastv@64,16"], out=out / family, task=f"mini:{family}", limit=2)
    return [out / "digit", out / "presence"]


ROWS = [
    RowSpec("fastv@64", "fastv@64", "fastv", factors={"budget": 64}),
    RowSpec("other", "fastv@16", "eos", searched=True, factors={"budget": 16, "kind": "x"}),
]


@pytest.fixture(scope="module")
def study(folders):
    return make_study(folders, ROWS, name="main", title="All", labels=["tab:main_retainsweep"])


def test_a_study_has_the_rows_of_all_folders_and_the_full_model(study):
    assert [x.name for x in study.rows] == ["full", "fastv@64", "other"]
    assert list(study.families) == ["digit", "presence"]
    assert study.row("other").factors == {"budget": 16, "kind": "x"}
    assert study.row("full").plan is None
    assert study.row("full").average.difference is None
    assert Plan(**study.row("fastv@64").plan).expected == study.row("fastv@64").cost
    assert {len(own) for x in study.rows for own in x.scores.values()} == {2}


def test_a_study_is_read_back_equal(study, tmp_path):
    study.save(tmp_path / "main.json")
    assert Study.load(tmp_path / "main.json") == study
    text = (tmp_path / "main.json").read_text(encoding="utf-8")
    assert '"digit": [0,0]' in text  # a score a line would make the file ten times as long


def test_a_study_without_the_full_model_or_with_missing_scores_is_refused(study):
    data = study.model_dump(by_alias=True)
    with pytest.raises(ConfigError, match="full model's row"):
        Study(**{**data, "rows": data["rows"][1:]})
    data["rows"][1]["scores"]["digit"] = [1]
    with pytest.raises(ConfigError, match="as many as questions"):
        Study(**data)
    with pytest.raises(ConfigError, match="twice"):
        Study(**{**data, "rows": [data["rows"][0]] * 2})


def test_folders_of_different_questions_make_no_study(folders, sibling, tmp_path):
    evaluate(sibling, ["fastv@64,16"], out=tmp_path, task="mini:string", limit=2, seed=5)
    with pytest.raises(ConfigError, match="seed"):
        make_study([*folders, tmp_path], ROWS, name="main", title="All")


def test_the_comparison_is_the_one_worked_by_hand():
    own, other = row("a", x=(1, 1, 0, 1), y=(0, 1)), row("b", x=(1, 0, 0, 1), y=(1, 1))
    # x: differences 0, 100, 0, 0: mean 25, variance 2500, error 25; y: -100, 0: mean -50, error 50
    found = compare(own, other)
    assert found.points == pytest.approx((25 - 50) / 2)
    error = sqrt(25**2 + 50**2) / 2
    assert found.stderr == pytest.approx(error, abs=1e-6)
    assert found.low == pytest.approx(-12.5 - Z95 * error, abs=1e-5)
    assert found.high == pytest.approx(-12.5 + Z95 * error, abs=1e-5)
    assert compare(other, own).points == -found.points
    assert compare(own, own).stderr == 0


def test_the_mean_of_several_rows_is_compared_question_by_question():
    one, two, other = row("a", x=(1, 0)), row("b", x=(0, 0)), row("c", x=(0, 1))
    found = compare([one, two], other)  # 50, -100
    assert (found.points, found.stderr) == (-25.0, 75.0)


def test_rows_of_different_questions_are_not_compared():
    with pytest.raises(ConfigError, match="same questions"):
        compare(row("a", x=(1, 1)), row("b", x=(1, 1, 1)))


@pytest.mark.parametrize("module", TORCH_FREE)
def test_schemas_of_the_report_need_no_torch(module):
    code = f"import sys, eos.evaluation.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    # the control: plans do need it
    if module == "study":
        code = code.replace("eos.evaluation.study", "eos.space.plan")
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1


def test_every_file_of_a_reproduction_is_valid(reproduced):
    files = [*reproduced.glob("*.json"), *reproduced.glob("studies/*.json")]
    found = {validate_file(path) for path in files}
    kinds = ("study", "programme", "trajectory", "examples", "verify", "profile")
    assert found == {f"eos.{kind}/1" for kind in kinds}
    for path in files:
        known = schemas()[validate_file(path)]
        assert known.load(path).to_json() == path.read_text(encoding="utf-8")
