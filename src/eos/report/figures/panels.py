"""Panels: small plots of accuracy over one factor, a line a budget, as most ablations need."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from eos.evaluation.study import FULL_ROW, Study, StudyRow
from eos.report.comparison import budget_of, score_of
from eos.report.drawing import BLACK, CYCLE, GREY, MARKERS, PlotRow, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AVERAGE = "average"  # over all families


def point(row: StudyRow, column: str, **factors: str | float) -> PlotRow:
    """Describe one point of a figure: what varies, cost, accuracy in a column with its error."""
    own = score_of(row, column, [column] if column in row.families else list(row.families))
    return {
        "run": row.name,
        "method": row.method,
        "budget": row.cost.final_tokens if row.name == FULL_ROW else budget_of(row),
        "final_tokens": row.cost.final_tokens,
        "mean_tokens": row.cost.mean_tokens,
        "flops": row.cost.flops_ratio,
        **factors,
        "column": column,
        "accuracy": own.accuracy,
        "stderr": own.stderr,
        "n": own.n,
    }


def full_points(study: Study, columns: Iterable[str]) -> list[PlotRow]:
    """Describe the full model's accuracy in some columns."""
    return [point(study.row(FULL_ROW), column) for column in columns]


def draw_series(
    axes: "Axes", rows: Sequence[PlotRow], *, x: Sequence[float], place: int, label: str
) -> None:
    """Draw one line of points with their standard errors."""
    axes.errorbar(
        x,
        [number(row, "accuracy") for row in rows],
        yerr=[number(row, "stderr") for row in rows],
        color=CYCLE[place % len(CYCLE)],
        marker=MARKERS[place % len(MARKERS)],
        elinewidth=0.7,
        capsize=1.5,
        label=label,
    )


def draw_full(axes: "Axes", rows: Sequence[PlotRow], column: str) -> None:
    """Draw the full model's accuracy as a dashed line, if it is among the rows."""
    own = [row for row in rows if row["method"] == FULL_ROW and row["column"] == column]
    if own:
        level = number(own[0], "accuracy")
        axes.axhline(level, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), label="full model")


def mark_found(axes: "Axes", x: float, row: PlotRow, *, place: int) -> None:
    """Mark the point that a search found: a star in the colour of its line."""
    axes.plot(
        x,
        number(row, "accuracy"),
        marker="*",
        markersize=9,
        color=CYCLE[place % len(CYCLE)],
        markeredgecolor=BLACK,
        markeredgewidth=0.6,
        linestyle="none",
        zorder=5,
    )


def legend_above(figure: "Figure", axes: "Axes") -> None:
    """Name the lines once, above all panels; a star, if there is one, is what was found."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    named: dict[str, Any] = dict(zip(labels, handles, strict=True))
    if any(line.get_marker() == "*" for line in axes.get_lines()):
        look: Any = {"color": GREY, "markeredgecolor": BLACK, "markeredgewidth": 0.6}
        named["found by the search"] = Line2D([], [], marker="*", markersize=9, ls="none", **look)
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=len(named))


def panel_title(study: Study, column: str) -> str:
    """Name a column above a narrow panel: the family, then what it imitates."""
    if column not in study.families or not study.families[column].imitates:
        return column
    return f"{column},\nafter {study.families[column].imitates}"


def budgets_in(rows: Iterable[PlotRow]) -> list[float]:
    """List the budgets of reduced rows, largest first."""
    return sorted({number(r, "budget") for r in rows if r["method"] != FULL_ROW}, reverse=True)
