"""Figures of the search: γ layer by layer and over the steps, stages, and the profile's curves."""

from typing import TYPE_CHECKING, Any

from eos.evaluation.reproduction import Trajectory
from eos.report.drawing import (
    CYCLE,
    GREY,
    MARKERS,
    PlotData,
    PlotRow,
    new_figure,
    number,
    title_panel,
)
from eos.report.figures.naming import End, name_ends
from eos.report.figures.overview import searched_plans
from eos.report.plans import site
from eos.report.profile import best_curves
from eos.report.reproduction import Reproduction
from eos.searching.curves import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OPEN = 0.5  # a gate above it is open
MOST_POINTS = 200  # of a line over the steps of a search


def per_layer(reproduction: Reproduction) -> PlotData | None:
    """List γ of the found plans by layer, and γ of a descent on Θ by step and layer (Fig. 8)."""
    rows: list[PlotRow] = [
        {
            "panel": "found",
            "budget": budget,
            "layer": step.layer,
            "gamma": step.omega["gamma"],
            "regime": step.label,
        }
        for budget, plan in sorted(searched_plans(reproduction).items(), reverse=True)
        for step in plan.steps
        if step.omega is not None
    ]
    trajectory = reproduction.one(Trajectory)
    if trajectory is not None:
        rows += _trajectory(trajectory)
    return PlotData(rows) if rows else None


def _trajectory(trajectory: Trajectory) -> list[PlotRow]:
    """List γ of every site and step; whether its gate is open at the end."""
    every = -(-len(trajectory.steps) // MOST_POINTS)
    last = len(trajectory.steps) - 1
    chosen = [
        step for place, step in enumerate(trajectory.steps) if place % every == 0 or place == last
    ]
    gates = trajectory.steps[-1].theta["g"]
    return [
        {
            "panel": "trajectory",
            "budget": trajectory.budget,
            "step": step.step,
            "layer": layer,
            "gamma": step.theta["gamma"][place],
            "open": int(gates[place] > OPEN),
        }
        for place, layer in enumerate(trajectory.sites)
        for step in chosen
    ]


def draw_per_layer(data: PlotData) -> "Figure":
    """Draw γ of the plans as stems, and its trajectory as lines; layers that reduce stand out."""
    found = [row for row in data.rows if row["panel"] == "found"]
    trajectory = [row for row in data.rows if row["panel"] == "trajectory"]
    figure = new_figure(2.6)
    panels = figure.subplots(1, bool(found) + bool(trajectory), squeeze=False)[0]
    if found:
        _draw_found(panels[0], found)
        title_panel(panels[0], 0, "γ of the found plans")
    if trajectory:
        _draw_trajectory(figure, panels[-1], trajectory)
        title_panel(panels[-1], int(bool(found)), "γ over a descent on Θ, one line a layer")
    return figure


def _draw_found(axes: "Axes", rows: list[PlotRow]) -> None:
    budgets = sorted({number(row, "budget") for row in rows}, reverse=True)
    width = 0.7 / len(budgets)
    for place, budget in enumerate(budgets):
        own = [row for row in rows if row["budget"] == budget]
        x = [number(row, "layer") + (place - (len(budgets) - 1) / 2) * width for row in own]
        y = [number(row, "gamma") for row in own]
        colour = CYCLE[place % len(CYCLE)]
        axes.vlines(x, 0, y, color=colour, linewidth=1)
        look: Any = {"marker": MARKERS[place % len(MARKERS)], "color": colour, "linestyle": "none"}
        axes.plot(x, y, label=f"{budget:g} tokens", **look)
    layers = sorted({number(row, "layer") for row in rows})
    axes.set_xticks(layers, [site(int(layer)) for layer in layers])
    axes.set_xlabel("after layer")
    axes.set_ylabel("γ")
    axes.set_ylim(-0.04, 1.06)
    axes.legend(loc="best")


def _draw_trajectory(figure: "Figure", axes: "Axes", rows: list[PlotRow]) -> None:
    ends, last = [], max(number(row, "step") for row in rows)
    reducing = list(dict.fromkeys(number(row, "layer") for row in rows if row["open"]))
    for layer in dict.fromkeys(number(row, "layer") for row in rows):
        own = [row for row in rows if row["layer"] == layer]
        x, y = ([number(row, key) for row in own] for key in ("step", "gamma"))
        look: Any = {"color": GREY, "linewidth": 0.7, "alpha": 0.55}
        if layer in reducing:
            look = {"color": CYCLE[reducing.index(layer) % len(CYCLE)], "linewidth": 1.6}
            ends.append(End(x[-1], y[-1], f"layer {site(int(layer))}", look["color"]))
        axes.plot(x, y, **look)
    axes.set_xlabel("step of the search")
    axes.set_ylabel("γ")
    axes.set_ylim(-0.04, 1.06)
    axes.set_xlim(0, last * 1.25 or 1)
    name_ends(figure, axes, ends)


def stages(reproduction: Reproduction) -> PlotData | None:
    """List what each stage of the default search found: disagreement by compute."""
    trajectory = reproduction.one(Trajectory)
    if trajectory is None or not trajectory.stages:
        return None
    return PlotData([stage.model_dump(exclude={"steps"}) for stage in trajectory.stages])


def draw_stages(data: PlotData) -> "Figure":
    """Draw disagreement over compute, a line a budget, each stage named once."""
    figure = new_figure(2.6, width=4.6)
    axes = figure.subplots()
    budgets = sorted({number(row, "budget") for row in data.rows}, reverse=True)
    for place, budget in enumerate(budgets):
        own = [row for row in data.rows if row["budget"] == budget]
        keys = ("passes", "disagreement", "stderr")
        x, y, errors = ([number(row, key) for row in own] for key in keys)
        look: Any = {"marker": MARKERS[place % len(MARKERS)], "color": CYCLE[place % len(CYCLE)]}
        axes.errorbar(x, y, yerr=errors, capsize=1.5, label=f"{budget:g} tokens", **look)
        for row in own if place == 0 else ():
            where = (number(row, "passes"), number(row, "disagreement"))
            above: Any = {"xytext": (4, 6), "textcoords": "offset points", "fontsize": 6.5}
            axes.annotate(str(row["name"]), where, **above)
    axes.set_xlabel("forward passes of one question through the full decoder")
    axes.set_ylabel("disagreement with\nthe full model")
    axes.legend(loc="best")
    return figure


def profile(reproduction: Reproduction) -> PlotData | None:
    """List what pruning at one site costs, by its best scorer."""
    found = reproduction.one(Profile)
    if found is None:
        return None
    return PlotData(
        [
            {"site": layer, "score": name, "keep": keep, "disagreement": mean, "stderr": error}
            for layer, (name, *columns) in best_curves(found).items()
            for keep, mean, error in zip(*columns, strict=True)
        ]
    )


def draw_profile(data: PlotData) -> "Figure":
    """Draw a line a site, early ones dark; each named at its end of fewest tokens."""
    from matplotlib import colormaps, colors

    figure = new_figure(3.4, width=5.6)
    axes = figure.subplots()
    sites = list(dict.fromkeys(number(row, "site") for row in data.rows))
    ends = []
    for place, layer in enumerate(sites):
        own = sorted((r for r in data.rows if r["site"] == layer), key=lambda r: -number(r, "keep"))
        x, y, errors = ([number(r, key) for r in own] for key in ("keep", "disagreement", "stderr"))
        colour = colors.to_hex(colormaps["viridis"](0.9 * place / max(1, len(sites) - 1)))
        axes.errorbar(x, y, yerr=errors, marker=".", elinewidth=0.6, color=colour)
        ends.append(End(x[-1], y[-1], f"{site(int(layer))}: {own[0]['score']}", colour))
    axes.set_xscale("log", base=2)
    axes.invert_xaxis()
    counts = sorted({number(row, "keep") for row in data.rows})
    axes.set_xticks(counts, [f"{count:g}" for count in counts])
    axes.minorticks_off()
    axes.set_xlim(right=counts[0] / 4.5)
    axes.set_xlabel("visual tokens kept after one layer")
    axes.set_ylabel("disagreement with the full model")
    name_ends(figure, axes, ends, size=6.5)
    return figure
