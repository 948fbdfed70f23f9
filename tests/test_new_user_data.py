"""Complaints 8 and 13: bad data and outputs are found first; results print and convert."""

import builtins
import json
from math import isnan
from pathlib import Path

import pytest
from PIL import Image

import eos
from eos import ConfigError, SearchConfig, cli
from eos.evaluation.study import Study
from eos.report.programme import as_results
from eos.runs.files import check_file, check_folder
from eos.searching.search import search as find
from eos.space.specs import check_spec
from tests.test_loop import Holes
from tests.test_loop import searched as descended
from tests.test_search_plans import QUICK, SMALL, WORLD

PAPER = ["steps=12", "batch=2", "validation.samples=2", "starts=null", "micro_batch=null"]
PAPER += ["objective.align_layers=null", "data.kind=llava"]


@pytest.fixture
def unloaded(monkeypatch):
    """Fail as soon as weights are loaded or made."""

    def load(*given, **options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("eos.models.backbone.load_backbone", load)
    monkeypatch.setattr("eos.models.random_llava.random_llava", load)


@pytest.fixture
def blocked(tmp_path):
    """A place where no folder can be made, for any user."""
    (tmp_path / "file").write_text("not a folder")
    return tmp_path / "file" / "out"


def failed(capsys, *words):
    assert cli.main([*map(str, words)]) == 1
    return capsys.readouterr().err


@pytest.mark.usefixtures("unloaded")
def test_8_bad_data_is_found_before_the_model_is_loaded(capsys, tmp_path):
    llava = ["data.kind=llava", f"data.images={tmp_path}", "--out", tmp_path / "run"]
    missing, torn = tmp_path / "missing.json", tmp_path / "torn.json"
    for verb in (["search"], ["search", "paper-miniature"], ["profile"]):
        assert f"cannot read {missing}" in failed(capsys, *verb, *llava, f"data.file={missing}")
    torn.write_text("[")
    assert f"{torn} is not JSON" in failed(capsys, "search", *llava, f"data.file={torn}")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize(
    "verb", ["search", "profile", "eval", "fidelity", "bench", "reproduce", "ablate seeds"]
)
def test_8_an_unwritable_folder_is_found_before_the_model_is_loaded(capsys, blocked, verb):
    assert "can be written to" in failed(capsys, *verb.split(), "--out", blocked)


@pytest.mark.usefixtures("unloaded")
def test_8_other_outputs_and_plans_are_checked_before_the_model_is_loaded(
    capsys, blocked, tmp_path
):
    given = ["eval", "--out", tmp_path / "out"]
    assert "can be written to" in failed(capsys, *given, "--markdown", blocked / "table.md")
    assert "expected a file" in failed(capsys, *given, "--markdown", tmp_path)
    for plan in ("missing.json", "mine=missing.json"):
        assert "missing.json" in failed(capsys, *given, "--plan", plan)
        assert "missing.json" in failed(capsys, "bench", "--plan", plan)
    assert "found 'fastw'" in failed(capsys, *given, "--plan", "fastw@64")
    assert "mini" in failed(capsys, *given, "--tasks", "maxi")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("unloaded")
def test_8_what_is_right_gets_as_far_as_the_model(tmp_path):
    with pytest.raises(AssertionError, match="a model was loaded"):
        cli.main(["eval", "--out", str(tmp_path / "out"), "--plan", "fastv@64"])


def test_8_checking_an_output_leaves_nothing(tmp_path):
    check_folder(tmp_path / "a" / "b")
    check_file(tmp_path / "c" / "d.md")
    (tmp_path / "old.md").write_text("old")
    check_file(tmp_path / "old.md")
    assert [path.name for path in tmp_path.iterdir()] == ["old.md"]
    assert (tmp_path / "old.md").read_text() == "old"
    check_spec("fastv@600")  # of a model with more tokens than this one would say


@pytest.fixture(scope="module")
def conversations(tmp_path_factory):
    """Twelve conversations, the images of two of which are missing."""
    folder = tmp_path_factory.mktemp("data")
    entries = []
    for i in range(12):
        if i not in (3, 7):
            Image.new("RGB", (56, 56), (20 * i, 0, 0)).save(folder / f"{i}.png")
        turns = [("human", "<image>\nhow many red circle ?"), ("gpt", "2")]
        talk = [{"from": speaker, "value": text} for speaker, text in turns]
        entries.append({"id": f"talk-{i}", "image": f"{i}.png", "conversations": talk})
    (folder / "mix.json").write_text(json.dumps(entries))
    return folder


def test_8_skipped_samples_are_announced_once_each(sibling, conversations, tmp_path, capsys):
    data = [f"data.file={conversations / 'mix.json'}", f"data.images={conversations}"]
    command = ["search", "paper-miniature", f"backbone={sibling}", *PAPER, *data, "seed=1"]
    command += ["--out", str(tmp_path / "run"), "--quiet"]
    for _ in range(2):  # a finished run says the same
        assert cli.main(command) == 0
        path = tmp_path / "run" / "skipped.jsonl"
        assert f"2 samples were skipped; ids and reasons: {path}" in capsys.readouterr().out
    ids = [json.loads(line)["id"] for line in path.read_text().splitlines()]
    assert {*ids} == {"talk-3", "talk-7"}
    assert len(ids) > 2
    assert cli.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == 2


def test_8_samples_that_a_gradient_cannot_use_are_counted(sibling, tmp_path):
    backbone, exam = eos.load_backbone(sibling), WORLD.model_copy(update={"split": "validation"})
    config = SearchConfig(**{**SMALL, "explore": {**QUICK, "gradient_samples": 20}})
    found = find(backbone, Holes(12), config, validation=exam, out=tmp_path)
    lines = (tmp_path / "skipped.jsonl").read_text().splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    assert found.skipped == len({*ids}) > 0
    assert len(ids) == 2 * found.skipped  # by the descent of each budget


def test_8_without_bad_samples_nothing_is_announced(sibling, tmp_path):
    found = descended(eos.load_backbone(sibling), tmp_path / "run")
    assert found.skipped == 0


@pytest.fixture
def results():
    path = Path(eos.__file__).parent / "results" / "miniature" / "studies" / "main.json"
    study = Study.load(path)
    return as_results(study, [study.row("full"), study.row("eos@64"), study.row("fastv@64")])


def test_13_results_print_as_a_table(results):
    about, head, full, *others, note = str(results).splitlines()
    assert results.backbone in about
    assert str(results.seed) in about
    assert head.split() == ["run", "final", "FLOPs", "accuracy", "difference", "95%", "interval"]
    own = results.rows[0].average
    accuracy = [f"{own.accuracy:.1f}", "±", f"{own.stderr:.1f}"]
    assert full.split() == ["full", "576", "1.000", *accuracy, "-", "-"]
    for row, line in zip(results.rows[1:], others, strict=True):
        paired = row.average.difference
        cells = [f"{x:.1f}" for x in (row.average.accuracy, row.average.stderr)]
        cells += [f"{x:+.1f}".replace("-", "−") for x in (paired.points, paired.high)]
        assert set(cells) <= set(line.split())
        assert f"{row.cost.flops_ratio:.3f}" in line.split()
        assert len(line) == len(head)
    assert "standard error" in note
    page = Path(__file__).parent.parent / "docs" / "search.md"
    start = results.model_copy(update={"rows": results.rows[:2]})
    assert "\n".join(str(start).splitlines()[1:4]) in page.read_text(encoding="utf-8")
    assert str(results) != str(results.model_copy(update={"rows": results.rows[:2]}))


def test_13_a_found_plan_prints_with_its_costs(sibling, tmp_path):
    found = descended(eos.load_backbone(sibling), tmp_path / "run", budgets=(64, 16))
    _, head, first, second, *rest = str(found).splitlines()
    assert head.split()[:5] == ["budget", "final", "mean", "FLOPs", "KV"]
    for line, (budget, plan), gap in zip(
        (first, second), found.plans.items(), found.gaps, strict=True
    ):
        cost = plan.expected
        cells = [str(budget), str(budget), f"{cost.mean_tokens:.1f}", f"{cost.flops_ratio:.3f}"]
        cells += [f"{cost.kv_bytes_ratio:.3f}", f"{gap.gap.mean:.4f}", "±"]
        assert line.split()[:7] == cells
    assert "\n".join(rest).strip().startswith("budget 64\nlayer")


def test_13_results_become_a_data_frame(results):
    pytest.importorskip("pandas")
    frame = results.to_dataframe().set_index("run")
    assert list(frame.index) == [row.name for row in results.rows]
    assert isnan(frame.loc["full", "difference"])
    row = results.rows[1]
    assert frame.loc[row.name, "accuracy"] == row.average.accuracy
    assert frame.loc[row.name, "low"] == row.average.difference.low
    assert frame.loc[row.name, "flops_ratio"] == row.cost.flops_ratio
    long = results.to_dataframe(families=True).set_index(["run", "family"])
    assert len(long) == 3 * len(results.families)
    assert long.loc[(row.name, "digit"), "stderr"] == row.families["digit"].stderr


def test_13_without_pandas_the_error_says_how_to_install_it(results, monkeypatch):
    real = builtins.__import__

    def without(name, *given, **options):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)
        return real(name, *given, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="pip install pandas"):
        results.to_dataframe()
