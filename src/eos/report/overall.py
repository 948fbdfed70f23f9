"""The table of several benchmarks: a row a run, a column a benchmark, the paper's average."""

from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.overall import Overall, OverallRow
from eos.evaluation.totals import Total
from eos.report.evaluation import COSTS, costs
from eos.report.layout import Grid, show
from eos.tables import markdown_table


def show_overall(overall: Overall, *, width: int | None = None) -> None:
    """Print the table and what a reader must know."""
    rows = [_cells(overall, row) for row in overall.rows]
    grid = Grid(_head(overall), rows, title="benchmarks", lines_after=(0,))
    show([grid, *caption(overall)], width=width)


def overall_markdown(overall: Overall) -> str:
    """Write the table as Markdown."""
    rows = [_cells(overall, row) for row in overall.rows]
    named = [[f"`{cells[0]}`", *cells[1:]] for cells in rows]
    return "\n".join([markdown_table(_head(overall), named), "", *caption(overall), ""])


def caption(overall: Overall) -> list[str]:
    """Describe the model, the questions, what was left out, and the average."""
    counts = ", ".join(
        f"{BENCHMARKS[name].title} {n} of {BENCHMARKS[name].size}"
        for name, n in overall.questions.items()
    )
    found = [
        f"{overall.backbone}, {overall.num_layers} layers, {overall.visual_tokens} visual tokens. "
        f"Questions: {counts}.",
        "Each benchmark's own figure ± standard error (jackknife over images); average: of all "
        "twelve, MME divided by 28. final, mean: visual tokens left, and entering a layer. FLOPs: "
        "over the full model's.",
    ]
    problems = [
        f"{BENCHMARKS[name].title}: " + ", ".join(f"{kind} × {n}" for kind, n in own.items())
        for name, own in overall.problems.items()
        if own
    ]
    return [*found, f"Left out, see skipped.jsonl: {'; '.join(problems)}."] if problems else found


def _head(overall: Overall) -> list[str]:
    return ["run", *COSTS, *(BENCHMARKS[name].title for name in overall.questions), "average"]


def _cells(overall: Overall, row: OverallRow) -> list[str]:
    mean = row.average
    scores = [_write(row.scores[name], BENCHMARKS[name].points) for name in overall.questions]
    average = "-" if mean is None else f"{mean.mean:.2f} ± {mean.stderr:.2f}"
    return [row.name, *costs(row), *scores, average]


def _write(total: Total, points: float) -> str:
    digits = 0 if points > 1 else 1
    return f"{total.value:.{digits}f} ± {total.stderr:.{digits}f}"
