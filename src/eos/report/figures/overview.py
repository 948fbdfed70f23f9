"""The signature figure: what the searched plans do, above accuracy over FLOPs of all methods.

A plan strip has a bar for every decoder layer: its height is the number of visual tokens that enter
the layer, its colour what the last step did with the others.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from eos.evaluation.results import ResultRow, Results
from eos.evaluation.study import FULL_ROW, Study, StudyRow
from eos.report.comparison import budget_of, method_name
from eos.report.drawing import BOTH, GREEN, GREY, REGIMES, PlotData, PlotRow, new_figure, number
from eos.report.figures.naming import End, name_ends
from eos.report.plans import PlanView, StepView
from eos.report.reproduction import Reproduction, setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

STRIPS = 3  # budgets whose plans are drawn: the largest, a middle one, the smallest
FULL_LABEL = "full model"
SEARCH = "eos"
TWIN = "-original"  # what presets that do as the authors' code are called
CLEAR = 2.0  # points of accuracy from the full model's line to a name


def overview(reproduction: Reproduction) -> PlotData | None:
    """List the bars of the strips, then the points of the curves; None without results."""
    source = reproduction.study("main") or reproduction.one(Results)
    if source is None:
        return None
    plans = searched_plans(reproduction)
    chosen = spread(sorted(plans, reverse=True), STRIPS)
    rows: list[PlotRow] = []
    for budget in chosen:
        rows += strip_rows(plans[budget], budget, accuracy=_accuracy(source, budget))
    cheaper = reproduction.study("cheaper")
    more = cheaper.rows if cheaper and setting(cheaper) == setting(source) else []
    found = [row for row in more if row.method == SEARCH]
    return PlotData([*rows, *curve_rows([*source.rows, *found])])


def spread(values: Sequence[int], count: int) -> list[int]:
    """Pick values over the whole range: the first, the last, and some between.

    >>> spread([192, 128, 96, 64, 32, 16], 3)
    [192, 64, 16]
    """
    if len(values) <= count:
        return list(values)
    return [values[-(-place * (len(values) - 1) // (count - 1))] for place in range(count)]


def searched_plans(reproduction: Reproduction) -> dict[int, PlanView]:
    """Find the plan of the default search at every budget: in the main study, else in files."""
    study = reproduction.study("main")
    if study is None:
        return {plan.expected.final_tokens: plan for plan in reproduction.all(PlanView)}
    found: dict[int, PlanView] = {}
    for row in study.rows:
        if row.searched and row.plan is not None:
            found.setdefault(budget_of(row), PlanView(**row.plan))
    return found


def strip_rows(plan: PlanView, budget: int, *, accuracy: float | None) -> Iterator[PlotRow]:
    """List a bar for every layer, with the step that acts before it."""
    before: dict[int, StepView] = {step.layer + 1: step for step in plan.steps}
    last: StepView | None = None
    for layer, tokens in enumerate(plan.schedule):
        own = before.get(layer)
        last = own or last
        yield {
            "part": "strip",
            "budget": budget,
            "layer": layer,
            "tokens": tokens,
            "of": plan.visual_tokens,
            "regime": last.kind if last else "none",
            "hybrid": int(last is not None and last.hybrid),
            "step": own.label if own else "",
            "flops": plan.expected.flops_ratio,
            "accuracy": accuracy,
        }


def curve_rows(rows: Sequence[ResultRow]) -> Iterator[PlotRow]:
    """List a point for every run: method, budget, FLOPs, mean tokens, accuracy.

    Plans found at lower FLOPs are further points of the first search's line.
    """
    for row in rows:
        full = row.name == FULL_ROW
        cheap = isinstance(row, StudyRow) and "flops_of" in row.factors
        yield {
            "part": "curve",
            "name": SEARCH if cheap else method_name(row),
            "method": FULL_LABEL if full else method_of(row),
            "searched": int(_searched(row)),
            "budget": row.cost.final_tokens if full else budget_of(row),
            "flops": row.cost.flops_ratio,
            "mean_tokens": row.cost.mean_tokens,
            "accuracy": row.average.accuracy,
            "stderr": row.average.stderr,
            "n": row.average.n,
        }


def method_of(row: ResultRow) -> str:
    """Name what made a row's plan."""
    if isinstance(row, StudyRow):
        return row.method
    return SEARCH if _searched(row) else method_name(row)


def _searched(row: ResultRow) -> bool:
    # results of `eos eval` do not say what found a plan; searched plans in the package are eos-…
    return row.searched if isinstance(row, StudyRow) else row.name.startswith(SEARCH)


def _accuracy(source: Study | Results, budget: int) -> float | None:
    """Find the accuracy of the first searched row of a budget."""
    own = [row for row in source.rows if _searched(row) and budget_of(row) == budget]
    return own[0].average.accuracy if own else None


def draw_overview(data: PlotData) -> "Figure":
    """Draw the strips above the curves."""
    strips = [row for row in data.rows if row["part"] == "strip"]
    curves = [row for row in data.rows if row["part"] == "curve"]
    budgets = list(dict.fromkeys(row["budget"] for row in strips))
    figure = new_figure(6.0 if budgets else 4.0, width=8.0)
    if not budgets:
        draw_curves(figure, figure.subplots(), curves)
        return figure
    parts: Any = figure.subfigures(2, 1, height_ratios=[1.0, 2.1], hspace=0.02)
    upper, lower = parts
    panels = upper.subplots(1, len(budgets), sharey=True, squeeze=False)[0]
    for axes, budget in zip(panels, budgets, strict=True):
        draw_strip(axes, [row for row in strips if row["budget"] == budget])
    panels[0].set_ylabel("visual tokens\nentering a layer")
    handles = regime_handles(strips)
    upper.legend(handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.5)
    draw_curves(figure, lower.subplots(), curves)
    return figure


def draw_strip(axes: "Axes", rows: Sequence[PlotRow]) -> None:
    """Draw one plan: a bar a layer, and the count wherever it changes."""
    layers, tokens = ([number(row, key) for row in rows] for key in ("layer", "tokens"))
    total = number(rows[0], "of")
    axes.bar(layers, [total] * len(layers), width=0.86, color=GREY, alpha=0.16, linewidth=0)
    for row, height in zip(rows, tokens, strict=True):
        colour = REGIMES[str(row["regime"])]
        style: dict[str, Any] = {"color": colour, "linewidth": 0}
        if row["hybrid"]:  # the interior: hatched
            style = {"facecolor": f"{colour}66", "edgecolor": colour, "hatch": "////"}
            style["linewidth"] = 0.8
        axes.bar(number(row, "layer"), height, width=0.86, **style)
    for place in range(len(rows)):
        if place == 0 or tokens[place] != tokens[place - 1]:
            axes.text(
                place - 0.43, tokens[place] + 0.03 * total, f"{tokens[place]:.0f}", va="bottom"
            )
    known = rows[0]["accuracy"] is not None
    accuracy = f" · {number(rows[0], 'accuracy'):.1f}%" if known else ""
    flops = number(rows[0], "flops")
    axes.set_title(f"{rows[0]['budget']} final tokens · {flops:.3f} FLOPs{accuracy}", loc="left")
    axes.set_xlabel("decoder layer")
    every = max(1, len(rows) // 12)
    axes.set_xticks(layers[::every], [f"{layer:g}" for layer in layers[::every]])
    axes.set_ylim(0, total * 1.12)
    axes.grid(False)


def regime_handles(rows: Sequence[PlotRow]) -> "list[Patch]":
    """Make the entries of a legend for the colours that occur."""
    from matplotlib.patches import Patch

    handles = []
    for kind, hybrid in dict.fromkeys((str(r["regime"]), bool(r["hybrid"])) for r in rows):
        colour = REGIMES[kind]
        name = {"none": "not reduced yet", "own": "a method's own"}.get(kind, kind)
        text = f"hybrid, near {kind}" if hybrid else name
        face, hatch = (f"{colour}66", "////") if hybrid else (colour, None)
        handles.append(Patch(facecolor=face, edgecolor=colour, hatch=hatch, label=text))
    return handles


def draw_curves(figure: "Figure", axes: "Axes", rows: Sequence[PlotRow]) -> None:
    """Draw accuracy over FLOPs, a line a run's name; a twin of another is dotted and not named."""
    lines: dict[str, list[PlotRow]] = {}
    for row in sorted(rows, key=lambda row: number(row, "flops")):
        lines.setdefault(str(row["name"]), []).append(row)
    ends: dict[str, list[End]] = {}
    for name, own in lines.items():
        look = _look(name, own[0], names=lines)
        x, y, errors = (
            [number(row, key) for row in own] for key in ("flops", "accuracy", "stderr")
        )
        axes.errorbar(x, y, yerr=errors, marker="o", elinewidth=0.7, capsize=0, **look)
        if look["linestyle"] == "-":
            colour = BOTH if look["color"] == GREY else str(look["color"])  # text needs contrast
            end = End(x[-1], y[-1], str(own[0]["method"]), colour)
            ends.setdefault(end.text, []).append(end)
    low, full = min(number(row, "flops") for row in rows), ends[FULL_LABEL][0]
    axes.plot([low, full.x], [full.y] * 2, color=BOTH, linewidth=0.9, linestyle=(0, (4, 3)))
    ticks = [tick for tick in (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0) if tick >= low * 0.9]
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("FLOPs of prefill, relative to the full model")
    axes.set_ylabel("accuracy, % (mean of all families)")
    axes.set_xlim(right=1.45)
    note = f"bars: standard error, n = {number(rows[0], 'n'):g} questions"
    if any(_look(name, own[0], names=lines)["linestyle"] == ":" for name, own in lines.items()):
        note = f"dotted: the same method by its authors' own operator\n{note}"
    axes.text(0.99, 0.02, note, transform=axes.transAxes, ha="right", va="bottom", fontsize=7)
    points = [(number(row, "flops"), number(row, "accuracy")) for row in rows]
    names = [_above(_named(own), full) for own in ends.values()]
    name_ends(figure, axes, names, points=points)


def _look(name: str, row: PlotRow, *, names: Collection[str]) -> dict[str, Any]:
    """Choose colour and weight: searched plans stand out; authors' twins are dotted."""
    if row["method"] == FULL_LABEL:
        return {"color": BOTH, "markersize": 5, "linestyle": "-", "zorder": 4}
    if row["searched"]:
        return {"color": GREEN, "linewidth": 1.8, "markersize": 4, "linestyle": "-", "zorder": 4}
    twin = name.endswith(TWIN) and name.removesuffix(TWIN) in names
    return {
        "color": GREY,
        "linewidth": 0.9,
        "markersize": 2.6,
        "linestyle": ":" if twin else "-",
        "zorder": 2,
    }


def _named(ends: Sequence[End]) -> End:
    """Name several lines of one method once, at the best of their ends."""
    best = max(ends, key=lambda end: end.y)
    return best if len(ends) == 1 else best._replace(text=f"{best.text}, {len(ends)} searches")


def _above(end: End, full: End) -> End:
    """Lift a name off the line of the full model."""
    meets = end.x < full.x and abs(end.y - full.y) < CLEAR
    return end._replace(y=full.y + CLEAR) if meets else end
