"""Figure 7: accuracy over budgets of the classic methods, and the margin over families."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eos.evaluation.study import Study, StudyRow, compare
from eos.report.comparison import at_budget, budgets_of, shown_families
from eos.report.drawing import (
    BLACK,
    GREY,
    PlotData,
    PlotRow,
    log_budgets,
    new_figure,
    number,
    title_panel,
)
from eos.report.figures.panels import (
    AVERAGE,
    draw_full,
    draw_series,
    full_points,
    legend_above,
    panel_title,
    point,
)
from eos.report.reproduction import Reproduction
from eos.report.tables.budgets import RIVAL, ROBUSTNESS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE = "eos-one"  # one plan rescaled to every budget
CLASSICS = ("eos", ONE, "sparsevlm-v1", RIVAL, "tome", "pool")
LEFT = {ONE: "eos, one plan for all"}


def robustness(reproduction: Reproduction) -> PlotData | None:
    """List accuracies by budget for three benchmarks and on average, then every family's margin."""
    study = reproduction.study("budgets")
    if study is None:
        return None
    columns = [*shown_families(study, ROBUSTNESS), AVERAGE]
    rows = full_points(study, columns)
    for column in columns:
        title = panel_title(study, column)
        own = [row for row in study.rows if row.method in CLASSICS]
        rows += [{**point(row, column), "panel": "budget", "title": title} for row in own]
    return PlotData([*rows, *_margins(study)])


def _margins(study: Study) -> list[PlotRow]:
    """Compare one searched plan with SparseVLM v2 at every budget, family by family and overall."""
    rows: list[PlotRow] = []
    for budget in budgets_of(study.rows):
        own = {row.method: row for row in at_budget(study, budget)}
        found, rival = own.get(ONE) or own.get("eos"), own.get(RIVAL)
        if found is None or rival is None:
            continue
        rows += [_margin(found, rival, budget, [name]) for name in study.families]
        rows.append(_margin(found, rival, budget, list(study.families)))
    return rows


def _margin(own: StudyRow, other: StudyRow, budget: int, families: list[str]) -> PlotRow:
    found = compare(own, other, families)
    return {
        "panel": "margin",
        "run": own.name,
        "method": own.method,
        "against": other.name,
        "budget": budget,
        "column": families[0] if len(families) == 1 else AVERAGE,
        "points": found.points,
        "low": found.low,
        "high": found.high,
    }


def draw_robustness(data: PlotData) -> "Figure":
    """Draw a panel a benchmark, then the margins."""
    lines = [row for row in data.rows if row.get("panel") == "budget"]
    margins = [row for row in data.rows if row.get("panel") == "margin"]
    columns = list(dict.fromkeys(str(row["column"]) for row in lines))
    figure = new_figure(2.6, width=8.5)
    panels = figure.subplots(1, len(columns) + 1, squeeze=False)[0]
    methods = [name for name in CLASSICS if any(row["method"] == name for row in lines)]
    for letter, (axes, column) in enumerate(zip(panels, columns, strict=False)):
        own = [row for row in lines if row["column"] == column]
        for place, method in enumerate(methods):
            line = _by_budget(row for row in own if row["method"] == method)
            x = [number(row, "budget") for row in line]
            draw_series(axes, line, x=x, place=place, label=LEFT.get(method, method))
        draw_full(axes, data.rows, column)
        log_budgets(axes, sorted({number(row, "budget") for row in own}))
        title_panel(axes, letter, str(own[0]["title"]))
    panels[0].set_ylabel("accuracy, %")
    _draw_margins(panels[-1], margins)
    title_panel(panels[-1], len(columns), f"margin over\n{RIVAL}")
    legend_above(figure, panels[0])
    return figure


def _by_budget(rows: Iterable[PlotRow]) -> list[PlotRow]:
    return sorted(rows, key=lambda row: number(row, "budget"))


def _draw_margins(axes: "Axes", rows: list[PlotRow]) -> None:
    """Draw a dot a family, and the average with its 95% interval."""
    axes.axhline(0, color=GREY, linewidth=0.8)
    dots = [row for row in rows if row["column"] != AVERAGE]
    x, y = ([number(row, key) for row in dots] for key in ("budget", "points"))
    axes.plot(x, y, linestyle="none", marker=".", color=GREY, alpha=0.7, label="a family")
    mean = _by_budget(row for row in rows if row["column"] == AVERAGE)
    x, y, low, high = (
        [number(row, key) for row in mean] for key in ("budget", "points", "low", "high")
    )
    below = [point - bound for point, bound in zip(y, low, strict=True)]
    above = [bound - point for point, bound in zip(y, high, strict=True)]
    axes.errorbar(
        x, y, yerr=[below, above], color=BLACK, marker="o", capsize=2, label="average, 95%"
    )
    log_budgets(axes, sorted({number(row, "budget") for row in rows}))
    axes.set_ylabel("points")
    axes.set_ylim(top=1.45 * max(*y, *(number(row, "points") for row in dots)))  # for the legend
    axes.legend(loc="upper right", handletextpad=0.3)
