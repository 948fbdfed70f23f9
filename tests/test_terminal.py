"""Complaint 6: what is printed in a terminal of any width has whole names, numbers and code."""

import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

import eos
from eos import cli
from eos.commands.reproduce import show_programme
from eos.commands.search import describe_status
from eos.commands.terminal import columns
from eos.estimates import Estimate
from eos.evaluation.agreement import agreement, pooled
from eos.evaluation.fidelity import SLOPE_METHODS, Fidelity, Level
from eos.evaluation.latency import LatencyReport, Row
from eos.evaluation.study import Study
from eos.report.evaluation import show_evaluation
from eos.report.fidelity import markdown, show_fidelity
from eos.report.latency import show_latency
from eos.report.layout import Grid, show_grid
from eos.report.profile import best_curves, show_profile
from eos.report.programme import as_results
from eos.report.search import show_search
from eos.searching.curves import Profile
from eos.searching.explore import StageRecord
from eos.searching.measure import Gap
from eos.searching.run import Status

PACKAGED = Path(eos.__file__).parent / "results" / "miniature"
WIDTHS = (60, 80, 120)
LONG = "a-plan-that-somebody-gave-a-name-of-forty@64"


@pytest.fixture(scope="module")
def results():
    study = Study.load(PACKAGED / "studies" / "main.json")
    return as_results(study, study.rows)


@pytest.fixture(scope="module")
def searched():
    """What the packaged search found, at two budgets."""
    plans = {budget: eos.Plan.load(PACKAGED / f"plan-{budget}.json") for budget in (64, 16)}
    theta = eos.Theta.load(PACKAGED / "theta.json")
    stages = {budget: stages_of(plan) for budget, plan in plans.items()}
    return eos.SearchResult(theta, plans[64], plans, "eos", stages=stages)


def stages_of(plan):
    found = [("race", 40), ("moves: where, how much", 112), ("confirm", 2)]
    far = Estimate(mean=0.1234, stderr=0.0123)
    return tuple(
        StageRecord(name=name, tried=n, disagreement=far, passes=12345.6, steps=plan.steps)
        for name, n in found
    )


def latency():
    row = {"mean_tokens": 106.7, "flops_ratio": 0.161, "kv_ratio": 0.275, "prefill_ms": 1234.5}
    row |= {"decode_ms": 45.67, "bound_ms": 1111.1, "overhead": 0.0234, "speedup": 3.21}
    row |= {"over_bound": 1.111, "kv_bytes": 3 * 2**20, "kv_bytes_expected": 2 * 2**20}
    names = ["full", "fastv@64", "sparsevlm-v1-original@192", LONG]
    return LatencyReport(
        model="random LLaVA",
        num_layers=12,
        dtype="float32",
        device="cpu",
        torch="2.6",
        threads=1,
        visual_tokens=576,
        text_tokens=64,
        batch=1,
        repeats=7,
        decode_tokens=4,
        rows=tuple(
            Row(name=name, final_tokens=64 + i, kv_exact=i < 3, samples={}, **row)
            for i, name in enumerate(names)
        ),
    )


def fidelity():
    layers = list(range(11))
    slopes = [Estimate(mean=x - 5.1234, stderr=0.1234) for x in layers]
    agreeing = agreement(slopes, slopes, rank_stderr=0.05, total_stderr=0.04)
    levels = [
        Level(
            keep_frac=frac,
            keep=int(576 * frac),
            step=9,
            difference=slopes,
            certain=10,
            methods=dict.fromkeys(SLOPE_METHODS, agreeing),
        )
        for frac in (0.5, 0.2, 0.05)
    ]
    return Fidelity(
        backbone="miniature",
        data="world",
        score="text-raters",
        samples=240,
        visual_tokens=576,
        layers=layers,
        levels=levels,
        pooled=dict.fromkeys(SLOPE_METHODS, pooled(slopes, slopes, passes=3, rank_stderr=0.02)),
    )


def check(text, width, wholes):
    """Hold that no line is too long and that each of these stands whole, more than a part of one.

    A cell has a border or two spaces on either side.
    """
    assert max(map(cell_len, text.splitlines())) <= width
    assert "…" not in text
    cells = {
        cell.strip() for line in text.splitlines() for cell in line.replace("┃", "│").split("│")
    }
    cells |= {part.strip() for line in text.splitlines() for part in line.split("  ")}
    missing = [whole for whole in wholes if whole not in cells]
    assert not missing, missing[:5]


def score_cells(score):
    yield f"{score.accuracy:.1f}±{score.stderr:.1f}"
    if score.difference is not None:
        points, error = score.difference.points, score.difference.stderr
        sign = f"{points:+.1f}".replace("-", "−") if round(points, 1) else "0.0"
        yield f"{sign}±{error:.1f}"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [2, 4, 70])
def test_6_evaluations_fit_the_terminal(results, capsys, width, rows):
    some = results.model_copy(update={"rows": results.rows[:rows]})
    show_evaluation(some, width=width)
    wholes = [row.name for row in some.rows]
    for row in some.rows:
        wholes += [cell for own in row.families.values() for cell in score_cells(own)]
        wholes += [f"{row.average.accuracy:.1f} ± {row.average.stderr:.1f}"]
        wholes += [str(row.cost.final_tokens), f"{row.cost.flops_ratio:.3f}"]
    check(capsys.readouterr().out, width, wholes)


@pytest.mark.parametrize("width", WIDTHS)
def test_6_latencies_fit_the_terminal(capsys, width):
    report = latency()
    show_latency(report, width=width)
    wholes = [row.name for row in report.rows]
    wholes += ["64", "106.7", "x0.161", "1234.5", "x0.312", "1111.1", "1.111", "2.34%", "45.67"]
    wholes += ["x0.275", "3.0", "3.0 not 2.0"]
    check(capsys.readouterr().out, width, wholes)


@pytest.mark.parametrize("width", WIDTHS)
def test_6_fidelities_are_tables_that_fit(capsys, width):
    found = fidelity()
    show_fidelity(found, width=width)
    text = capsys.readouterr().out
    assert "|---" not in text
    assert "*measured*" not in text
    level = found.levels[0]
    wholes = [f"{x.mean:.3f} ± {x.stderr:.3f}" for x in level.difference]
    wholes += [f"0.5 ({level.keep} ± 9)", "1.00 ± 0.05", "100% of 10", "1.00 (1.00 to 1.00)"]
    check(text, width, [*wholes, *(name for name in SLOPE_METHODS if width > 60)])
    assert all(f"| {whole} |" in markdown(found) for whole in wholes)


@pytest.mark.parametrize("width", WIDTHS)
def test_6_searches_fit_the_terminal(searched, capsys, width):
    show_search(searched, Path("run"), width=width)
    wholes = ["0.1234 ± 0.0123", "12346", "moves: where, how much"]
    for plan in searched.plans.values():
        wholes.append(", ".join(f"{step.layer}: {step.keep}" for step in plan.steps))
    for step in searched.plan.steps:
        wholes += [step.score, str(step.keep), f"{step.operator.gamma:.3f}"]
    check(capsys.readouterr().out, width, wholes)


@pytest.mark.parametrize("width", WIDTHS)
def test_6_gaps_fit_the_terminal(searched, capsys, width):
    values = {"full": 0.1111, "theta": 0.2222, "plan": 0.3333, "gap": 0.1234}
    estimates = {name: Estimate(mean=mean, stderr=0.0123) for name, mean in values.items()}
    gap = Gap(budget=64, samples=240, **estimates)
    found = eos.SearchResult(searched.theta, searched.plan, searched.plans, "uniform", gaps=(gap,))
    show_search(found, Path("run"), width=width)
    wholes = [f"{mean:.4f} ± 0.0123" for mean in values.values()]
    check(capsys.readouterr().out, width, [*wholes, "240"])


@pytest.mark.parametrize("width", WIDTHS)
def test_6_profiles_fit_the_terminal(capsys, width):
    profile = Profile.load(PACKAGED / "profile.json")
    show_profile(profile, width=width)
    wholes = []
    for name, _, means, errors in best_curves(profile).values():
        wholes += [name, *(f"{m:.3f} ± {e:.3f}" for m, e in zip(means, errors, strict=True))]
    check(capsys.readouterr().out, width, wholes)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", [["ls"], ["verify"]])
def test_6_other_tables_fit_the_terminal(capsys, monkeypatch, width, words):
    monkeypatch.setenv("COLUMNS", str(width))
    assert cli.main(words) == 0
    wholes = ["sparsevlm-v1-original", "paper-llava-1.5-7b"] if words == ["ls"] else ["MERGE"]
    check(capsys.readouterr().out, width, wholes)


def test_6_the_check_finds_what_is_cut():
    for broken in (Table("run", "a", "b", "c", "d"), Table("run")):
        cells = [LONG, *["12.3 ± 0.45"] * 4][: len(broken.columns)]
        broken.add_row(*cells)
        out = StringIO()
        Console(width=40, file=out).print(broken)
        with pytest.raises(AssertionError):
            check(out.getvalue(), 40, cells)
    with pytest.raises(AssertionError):
        check("a" * 41, 40, [])


def shown(grid, width):
    out = StringIO()
    show_grid(Console(width=width, file=out), grid)
    return out.getvalue()


def test_6_names_longer_than_half_of_a_terminal_are_whole():
    rows = [[f"{LONG}{i}", "12.3 ± 4.5", "0.123"] for i in range(5)]
    grid = Grid(["run", "accuracy", "FLOPs"], rows, title="costs")
    for width in (50, 60, 80):  # at 50 each row is a list
        check(shown(grid, width), width, [*(row[0] for row in rows), "12.3 ± 4.5", "0.123"])
    assert "accuracy  12.3 ± 4.5" in shown(grid, 50)


def test_6_few_rows_are_turned_and_many_are_spread():
    heads = [f"family{i}" for i in range(9)]
    few = Grid(["run", *heads], [["full", *["12.3±4.5"] * 9]])
    assert shown(few, 60).count("full") == 1
    many = Grid(["run", *heads], [[f"plan@{i}", *["12.3±4.5"] * 9] for i in range(20)], title="all")
    text = shown(many, 60)
    assert [f"all ({i} of 3)" in text for i in (1, 2, 3)] == [True] * 3
    assert text.count("plan@7 ") == 3


def test_6_marks_in_names_are_not_styles():
    assert "[red]x" in shown(Grid(["run", "a"], [["[red]x", "1"]]), 60)


@pytest.mark.parametrize("width", WIDTHS)
def test_6_progress_shows_step_total_time_left_and_loss(width):
    out, now = StringIO(), [0.0]
    console = Console(width=width, file=out)
    line = Progress(*columns(console), console=console, get_time=lambda: now[0])
    status = Status(
        done=150,
        total=2000,
        start="attention-uniform",
        loss=12.3456,
        final_tokens=64,
        active_layers=2.99,
        flops_ratio=0.161,
        skipped=7,
        layers=list(range(40)),
    )
    bar = line.add_task(status.start, total=status.total, notes=())
    for done in (50, 100, 150):
        now[0] += 6
        line.update(bar, completed=done, notes=describe_status(status))
    console.print(line)
    text = out.getvalue().rstrip("\n")
    check(text, width, ["attention-uniform", "150/2000", "left 0:03:42", "loss 12.3456"])
    assert ("FLOPs x0.161" in text) == (width > 60)
    assert ("━" in text) == (width == 120)


@pytest.mark.parametrize("width", WIDTHS)
def test_6_the_code_to_use_a_plan_runs_as_it_is_printed(reproduced, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_programme(reproduced, as_json=False)
    table, code = Text.from_ansi(capsys.readouterr().out).plain.split("to use the plan:\n\n")
    compile(code, "printed", "exec")
    assert (reproduced / "plans" / "eos-1@64.json").as_posix() in code
    names = [row.name for row in Study.load(reproduced / "studies" / "main.json").rows]
    check(table.split("\nsaved ")[0], width, names)
