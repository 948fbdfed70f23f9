"""Figure 2: where, how much and how the found plans reduce, budget by budget."""

from typing import TYPE_CHECKING

from eos.report.drawing import PlotData, PlotRow, brief, new_figure, number
from eos.report.figures.overview import draw_strip, regime_handles, searched_plans, strip_rows
from eos.report.plans import GREEK, StepView, site
from eos.report.reproduction import Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 2  # of strips


def method(reproduction: Reproduction) -> PlotData | None:
    """List the bars of every found plan, and its steps with their scores and operators."""
    plans = searched_plans(reproduction)
    rows: list[PlotRow] = []
    for budget, plan in sorted(plans.items(), reverse=True):
        rows += strip_rows(plan, budget, accuracy=None)
        rows += [_step_row(step, budget) for step in plan.steps]
    return PlotData(rows) if rows else None


def _step_row(step: StepView, budget: int) -> PlotRow:
    return {
        "part": "step",
        "budget": budget,
        "layer": step.layer,
        "tokens": step.keep,
        "score": step.score,
        "step": step.label,
        **(step.omega or {}),
        "mass": step.mass,
    }


def draw_method(data: PlotData) -> "Figure":
    """Draw a strip a budget, with each step's score and operator in words."""
    strips = [row for row in data.rows if row["part"] == "strip"]
    budgets = list(dict.fromkeys(row["budget"] for row in strips))
    height = -(-len(budgets) // COLUMNS)
    figure = new_figure(2.15 * height + 0.3)
    panels = figure.subplots(height, COLUMNS, squeeze=False, sharey=True).flat
    for axes in panels[len(budgets) :]:
        axes.set_axis_off()
    for axes, budget in zip(panels, budgets, strict=False):
        draw_strip(axes, [row for row in strips if row["budget"] == budget])
        steps = [r for r in data.rows if r["part"] == "step" and r["budget"] == budget]
        text = "\n".join(["decoder layer; steps after:", *(_words(row) for row in steps)])
        axes.set_xlabel(text, fontsize=6, loc="left")
        axes.set_ylabel("tokens entering")
    handles = regime_handles(strips)
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _words(row: PlotRow) -> str:
    """Write a step in one line."""
    known = {sign: round(number(row, name), 2) for name, sign in GREEK.items() if name in row}
    numbers = [f"{sign} {brief(value)}" for sign, value in known.items()]
    numbers += [f"mass {brief(number(row, 'mass'))}"] if number(row, "mass") else []
    where = site(int(number(row, "layer")))
    return f"{where}: {row['score']} · {' '.join(numbers) or row['step']}"
