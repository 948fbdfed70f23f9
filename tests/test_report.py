"""A report as a whole: all labels, figures that are their CSV, the same bytes, no torch."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from eos.cli import main
from eos.errors import ConfigError
from eos.evaluation.study import Study
from eos.report import build as building
from eos.report.catalogue import FIGURES, TABLES, labels
from eos.report.drawing import STYLE, PlotData, to_csv
from eos.report.figures import ablations, budgets, overview, trajectory
from eos.report.figures.naming import columns
from eos.report.programme import as_results
from eos.report.reproduction import Reproduction, load
from tests import reports

ROOT = Path(__file__).parent.parent
PAPER = ROOT.parent / "shared" / "paper" / "eos.tex"
# labels of the paper's tables and figures, for where its source is not beside the repository
KNOWN = [
    "tab:onesided_constraints",
    "tab:unification",
    "tab:reproduce",
    "tab:main_retainsweep",
    "tab:app_hp",
    "tab:app_perlayer_theta",
    "tab:app_low_retain",
    "tab:app_full_retain",
    "tab:app_layer_perturb",
    "fig:teaser_prev_ours",
    "fig:teaser_intro_eos",
    "fig:eos_overview",
    "fig:main",
    "fig:operator_equivalence",
    "fig:abl_lambda_pope",
    "fig:abl_lambda_mme",
    "fig:abl_lambda_mmb",
    "fig:abl_lambda_avg",
    "fig:abl_lambda",
    "fig:abl_layer_l1",
    "fig:abl_layer_l2",
    "fig:abl_layer_l3",
    "fig:abl_layer_heat",
    "fig:abl_layers",
    "fig:abl_theta_gamma",
    "fig:abl_theta_tau",
    "fig:abl_theta_threshold",
    "fig:abl_theta_reweight",
    "fig:abl_theta_normp",
    "fig:abl_theta",
    "fig:abl_retain_pope",
    "fig:abl_retain_mme",
    "fig:abl_retain_mmb",
    "fig:abl_retain_delta",
    "fig:abl_retain",
    "fig:app_perlayer_gamma",
    "fig:app_search_traj",
    "fig:app_perlayer",
]
ALONE = """
import sys
from eos.cli import main
code = main(sys.argv[1:])
heavy = [name for name in ("torch", "transformers") if name in sys.modules]
assert not heavy, heavy
sys.exit(code)
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return reports.fill(tmp_path_factory.mktemp("filled"), n=10)


@pytest.fixture(scope="module")
def written(filled, tmp_path_factory):
    """A whole report, made by the command in a process of its own that must not import torch."""
    out = tmp_path_factory.mktemp("written")
    command = [sys.executable, "-c", ALONE, "report", str(filled), "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_torch_would_be_noticed():
    command = [
        sys.executable,
        "-c",
        "import sys; sys.modules['torch'] = sys\n" + ALONE,
        "--version",
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def test_every_label_of_the_paper_has_an_entry():
    wanted = set(KNOWN)
    if PAPER.exists():
        wanted = set(re.findall(r"\\label\{((?:tab|fig):\w+)\}", PAPER.read_text(encoding="utf-8")))
        assert wanted == set(KNOWN)
    assert wanted <= set(labels())
    assert not wanted | {"fig:other"} <= set(labels())


def test_a_whole_reproduction_makes_everything(written):
    out, said = written
    # the made-up search has no stages, and nobody measured a profile
    assert list(said["missing"]) == ["search_stages", "profile"]
    assert all(Path(path).stat().st_size > 0 for path in said["files"])
    stems = {label.rpartition(":")[2] for label in [*TABLES, *FIGURES]} - {*said["missing"]}
    assert stems <= {Path(path).stem for path in said["files"]}
    index = (out / "index.md").read_text(encoding="utf-8")
    assert "*not made*: needs profile.json (`eos profile`)" in index
    for link in re.findall(r"\]\(([^)]+)\)", index):
        assert (out / link).exists()


def test_another_process_writes_the_same_bytes(written, filled, tmp_path):
    out, _ = written
    found = load([filled])
    list(building._tables(found, tmp_path / "tables"))
    for label in ("fig:abl_layers", "fig:eos_overview", "patches"):
        building._figure(found, label, FIGURES[label], folder=tmp_path / "figures")
    again = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(again) > 30
    for path in again:
        assert path.read_bytes() == (out / path.relative_to(tmp_path)).read_bytes(), path.name


def test_the_rows_decide_what_is_written(filled):
    data = ablations.layers(load([filled]))
    changed = PlotData([{**row, "accuracy": 1.0} for row in data.rows])
    assert to_csv(changed.rows) != to_csv(data.rows)


def lines_of(figure):
    """All points that a figure's lines go through, by axes."""
    return [
        {
            (float(x), float(y))
            for line in axes.get_lines()
            for x, y in zip(*line.get_data(), strict=True)
        }
        for axes in figure.axes
    ]


def drawn(make, draw, found):
    with matplotlib.rc_context(STYLE):
        data = make(found)
        return list(csv.DictReader(to_csv(data.rows).splitlines())), draw(data)


def test_the_csv_holds_what_is_drawn(filled):
    found = load([filled])
    rows, figure = drawn(overview.overview, overview.draw_overview, found)
    points = lines_of(figure)[-1]
    curve = {(float(r["flops"]), float(r["accuracy"])) for r in rows if r["part"] == "curve"}
    assert curve <= points
    assert not {(0.123, 4.0)} <= points
    bars = {patch.get_height() for axes in figure.axes[:3] for patch in axes.patches}
    assert {float(row["tokens"]) for row in rows if row["part"] == "strip"} <= bars

    assert [r["name"] for r in rows].count("eos") == len(reports.BUDGETS) + 1  # one at lower FLOPs

    rows, figure = drawn(budgets.robustness, budgets.draw_robustness, found)
    margin = {(float(r["budget"]), float(r["points"])) for r in rows if r["panel"] == "margin"}
    assert margin <= lines_of(figure)[-1]

    rows, figure = drawn(trajectory.per_layer, trajectory.draw_per_layer, found)
    trajectory_rows = {
        (float(r["step"]), float(r["gamma"])) for r in rows if r["panel"] == "trajectory"
    }
    assert trajectory_rows == lines_of(figure)[1]

    rows, figure = drawn(ablations.operator, ablations.draw_operator, found)
    gamma = {(float(r["value"]), float(r["accuracy"])) for r in rows if r["parameter"] == "gamma"}
    assert gamma <= lines_of(figure)[0]


def test_a_figure_of_two_settings_is_refused(filled):
    own = load([filled])
    other = own.study("alignment").model_copy(update={"backbone": "another"})
    both = Reproduction({**own.files, "other.json": other})
    with pytest.raises(ConfigError, match=r"one setting.*backbone made-up.*backbone another"):
        ablations.alignment(both)
    assert ablations.alignment(own) is not None  # the control
    same = Reproduction({**own.files, "other.json": own.study("alignment")})
    assert ablations.alignment(same).rows == ablations.alignment(own).rows


def test_results_of_an_evaluation_make_a_plain_table_and_the_curves(tmp_path, capsys):
    study = Study.load(ROOT / "src" / "eos" / "results" / "miniature" / "studies" / "main.json")
    as_results(study, study.rows).save(tmp_path / "results.json")
    assert main(["report", str(tmp_path / "results.json"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "index.md" in said.out
    assert "not made: tab:main_retainsweep: needs studies/main.json" in said.err
    table = (tmp_path / "out" / "tables" / "results.md").read_text(encoding="utf-8")
    assert "| `fastv@64` | 64 | 0.161 |" in table
    assert "**" not in table  # without the scores of single questions nothing can be bold
    assert (tmp_path / "out" / "figures" / "eos_overview.svg").exists()


def test_what_cannot_be_read_is_an_error(tmp_path, capsys):
    assert main(["report", str(tmp_path / "none.json"), "--out", str(tmp_path / "out")]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_the_figure_of_the_readme_is_that_of_the_committed_results():
    found = load([ROOT / "src" / "eos" / "results" / "miniature"])
    stored = (ROOT / "docs" / "figures" / "eos_overview.csv").read_text(encoding="utf-8")
    assert stored == to_csv(overview.overview(found).rows), "run `make figures`"
    svg = (ROOT / "docs" / "figures" / "eos_overview.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg


def test_names_that_would_overlap_share_a_column():
    places, widths = [(0.0, 0.0), (0.0, 1.0), (90.0, 0.0)], [40.0] * 3
    found = columns(places, widths, height=8)
    assert sorted(group for group, _ in found) == [[0, 1], [2]]
    heights = next(box.heights for group, box in found if group == [0, 1])
    assert heights == (-3.5, 4.5)
    apart = columns([(0.0, 0.0), (0.0, 30.0)], [40.0] * 2, height=8)  # the control
    assert sorted(group for group, _ in apart) == [[0], [1]]


def test_the_page_of_results_is_made_from_committed_results(tmp_path):
    found = load([ROOT / "results" / "miniature"])
    made = [path for each in building._tables(found, tmp_path) for path in each.files]
    tables = [path for path in made if path.suffix == ".md"]
    page = building.summary_page(found, tables)
    stored = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert stored == page, "run `make figures`"
    rest = {path: file for path, file in found.files.items() if path.stem != "main"}
    assert building.summary_page(Reproduction(rest), tables) != page  # the control


def test_without_matplotlib_tables_are_made_and_figures_named(filled, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    made = building.build([filled / "verify.json"], tmp_path)
    assert all("pip install matplotlib" in figure.missing for figure in made.figures)
    assert (tmp_path / "tables" / "unification.md").exists()
