"""Figures of ablations: the alignment's weight, the layers that reduce, the operator's numbers."""

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from eos.evaluation.study import FULL_ROW, Study, StudyRow
from eos.report.comparison import shown_families
from eos.report.drawing import BLACK, PlotData, PlotRow, brief, new_figure, number, title_panel
from eos.report.figures.panels import (
    AVERAGE,
    budgets_in,
    draw_full,
    draw_series,
    full_points,
    legend_above,
    mark_found,
    panel_title,
    point,
)
from eos.report.plans import GREEK, OMEGA, steps_of
from eos.report.reproduction import Reproduction
from eos.report.tables.budgets import ROBUSTNESS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CE_OFF = "CE off"
ACCURACY = "accuracy, %"


def alignment(reproduction: Reproduction) -> PlotData | None:
    """List accuracies by weight of the alignment, for three benchmarks and the average (Fig. 4)."""
    study = reproduction.study("alignment")
    if study is None:
        return None
    columns = [*shown_families(study, ROBUSTNESS), AVERAGE]
    rows = full_points(study, columns)
    for column in columns:
        title = panel_title(study, column)
        for row in study.rows:
            if "lambda_a" in row.factors:
                weight = CE_OFF if float(row.factors.get("ce", 1)) == 0 else row.factors["lambda_a"]
                rows.append(point(row, column, lambda_a=weight, title=title))
    return PlotData(rows)


def draw_alignment(data: PlotData) -> "Figure":
    """Draw a panel a column; the weights at equal distances, the run without the task apart."""
    columns = list(dict.fromkeys(str(row["column"]) for row in data.rows))
    figure = new_figure(2.3)
    panels = figure.subplots(1, len(columns), squeeze=False)[0]
    swept = [row for row in data.rows if "lambda_a" in row]
    weights = sorted({number(r, "lambda_a") for r in swept if r["lambda_a"] != CE_OFF})
    for letter, (axes, column) in enumerate(zip(panels, columns, strict=True)):
        own = [row for row in swept if row["column"] == column]
        for place, budget in enumerate(budgets_in(own)):
            line = sorted(
                (r for r in own if r["budget"] == budget and r["lambda_a"] != CE_OFF),
                key=lambda row: number(row, "lambda_a"),
            )
            x: list[float] = [weights.index(number(row, "lambda_a")) for row in line]
            draw_series(axes, line, x=x, place=place, label=f"{budget:g} tokens")
            off = [r for r in own if r["budget"] == budget and r["lambda_a"] == CE_OFF]
            draw_series(axes, off, x=[len(weights) + 0.3] * len(off), place=place, label="")
        draw_full(axes, data.rows, column)
        names = [brief(weight) for weight in weights]
        axes.set_xticks([*range(len(weights)), len(weights) + 0.3], [*names, "CE\noff"])
        axes.set_xlabel("alignment weight λ$_a$")
        title_panel(axes, letter, str(own[0]["title"]))
    panels[0].set_ylabel(ACCURACY)
    legend_above(figure, panels[0])
    return figure


def layers(reproduction: Reproduction) -> PlotData | None:
    """List accuracies by the layer of each reducer, and by first and last together (Fig. 5)."""
    slices, heat = reproduction.study("layers"), reproduction.study("heatmap")
    rows: list[PlotRow] = []
    for study in (slices, heat):
        if study is not None and not rows:
            rows += full_points(study, [AVERAGE])
    if slices is not None:
        rows += _slices(slices)
    if heat is not None:
        rows += [_heat_row(row) for row in heat.rows if row.name != FULL_ROW]
    return PlotData(rows) if rows else None


def _heat_row(row: StudyRow) -> PlotRow:
    placed = {slot: _slot(row, slot) for slot in ("l1", "l3")}
    return {**point(row, AVERAGE, panel="heat", **placed), "searched": int(row.searched)}


def _slices(study: Study) -> list[PlotRow]:
    """List the points of the slices; what was found is a point of each."""
    rows: list[PlotRow] = []
    for row in study.rows:
        if row.searched:
            for place in range(len(steps_of(row))):
                slot = f"l{place + 1}"
                own = point(row, AVERAGE, panel=slot, layer=_slot(row, slot))
                rows.append({**own, "searched": 1})
        elif "parameter" in row.factors:
            slot, layer = str(row.factors["parameter"]), row.factors["value"]
            rows.append({**point(row, AVERAGE, panel=slot, layer=layer), "searched": 0})
    return rows


def _slot(row: StudyRow, slot: str) -> float:
    """Find the layer of a reducer: as the study says, else in the plan; l3 is the last one."""
    if slot in row.factors:
        return float(row.factors[slot])
    return steps_of(row)[-1 if slot == "l3" else int(slot[1:]) - 1].layer


def draw_layers(data: PlotData) -> "Figure":
    """Draw the slices, then the heat map."""
    slots = list(dict.fromkeys(str(row["panel"]) for row in data.rows if "layer" in row))
    heat = [row for row in data.rows if row.get("panel") == "heat"]
    ratios = [1.0] * len(slots) + [1.25] * bool(heat)
    figure = new_figure(2.4)
    panels = figure.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
    for letter, slot in enumerate(slots):
        _draw_slice(panels[letter], [r for r in data.rows if r.get("panel") == slot])
        draw_full(panels[letter], data.rows, AVERAGE)
        title_panel(panels[letter], letter, f"reducer {slot.replace('l', 'l$_')}$")
    if slots:
        panels[0].set_ylabel(f"{ACCURACY}, average")
        low = min(axes.get_ylim()[0] for axes in panels[: len(slots)])
        high = max(axes.get_ylim()[1] for axes in panels[: len(slots)])
        for axes in panels[: len(slots)]:
            axes.set_ylim(low, high)
        legend_above(figure, panels[0])
    if heat:
        _draw_heat(panels[-1], heat)
        title_panel(panels[-1], len(slots), f"(l$_1$, l$_3$), {number(heat[0], 'budget'):g} tokens")
    return figure


def _draw_slice(axes: "Axes", rows: Sequence[PlotRow]) -> None:
    for place, budget in enumerate(budgets_in(rows)):
        own = [row for row in rows if row["budget"] == budget]
        found = [row for row in own if row["searched"]]
        swept = [row for row in own if not row["searched"]]
        known = {number(row, "layer") for row in swept}
        line = swept + [row for row in found if number(row, "layer") not in known]
        line.sort(key=lambda row: number(row, "layer"))
        x = [number(row, "layer") for row in line]
        draw_series(axes, line, x=x, place=place, label=f"{budget:g} tokens")
        for row in found:
            mark_found(axes, number(row, "layer"), row, place=place)
    ticks = sorted({number(row, "layer") for row in rows})
    shown = ticks if len(ticks) < 9 else ticks[:: -(-len(ticks) // 8)]
    axes.set_xticks(shown, [_short(tick) for tick in shown])
    axes.set_xlabel("after layer")


def _short(layer: float) -> str:
    """Name a layer on a narrow axis; the input as in."""
    return "in" if layer < 0 else f"{layer:g}"


def _draw_heat(axes: "Axes", rows: Sequence[PlotRow]) -> None:
    """Draw accuracies as colours with their numbers; the found placement framed."""
    from matplotlib.patches import Rectangle

    firsts, lasts = (sorted({number(row, key) for row in rows}) for key in ("l1", "l3"))
    cells = {(number(r, "l1"), number(r, "l3")): number(r, "accuracy") for r in rows}
    grid = [[cells.get((l1, l3), float("nan")) for l3 in lasts] for l1 in firsts]
    axes.imshow(grid, cmap="cividis", aspect="auto", origin="lower")
    middle = (min(cells.values()) + max(cells.values())) / 2
    for (l1, l3), accuracy in cells.items():
        colour = "white" if accuracy < middle else BLACK
        place = (lasts.index(l3), firsts.index(l1))
        axes.text(*place, f"{accuracy:.0f}", ha="center", va="center", color=colour, fontsize=6.5)
    for row in rows:
        if row["searched"]:
            corner = (lasts.index(number(row, "l3")) - 0.5, firsts.index(number(row, "l1")) - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=2))
    axes.set_xticks(range(len(lasts)), [_short(layer) for layer in lasts])
    axes.set_yticks(range(len(firsts)), [_short(layer) for layer in firsts])
    axes.set_xlabel("last reducer after layer")
    axes.set_ylabel("first reducer after layer")
    axes.grid(False)


def operator(reproduction: Reproduction) -> PlotData | None:
    """List accuracies by each number of the central reducer's operator (Fig. 6)."""
    study = reproduction.study("operator")
    if study is None:
        return None
    rows = full_points(study, [AVERAGE])
    swept = {str(row.factors["parameter"]) for row in study.rows if "parameter" in row.factors}
    for row in study.rows:
        if row.searched:
            found = _central(row)
            rows += [
                {**point(row, AVERAGE, parameter=name, value=found[name]), "searched": 1}
                for name in OMEGA
                if name in swept and name in found
            ]
        elif "parameter" in row.factors:
            own = {key: row.factors[key] for key in ("parameter", "value")}
            rows.append({**point(row, AVERAGE, **own), "searched": 0})
    return PlotData(rows)


def _central(row: StudyRow) -> dict[str, float]:
    """Read the central reducer's operator: the second of three, the first of two."""
    steps = steps_of(row)
    return steps[(len(steps) - 1) // 2].omega or {}


def draw_operator(data: PlotData) -> "Figure":
    """Draw a panel a parameter, a line a budget; stars are the values that were found."""
    names = [name for name in OMEGA if any(row.get("parameter") == name for row in data.rows)]
    figure = new_figure(2.2)
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for letter, (axes, name) in enumerate(zip(panels, names, strict=True)):
        own = [row for row in data.rows if row.get("parameter") == name]
        for place, budget in enumerate(budgets_in(own)):
            line = sorted(
                (row for row in own if row["budget"] == budget and not row["searched"]),
                key=lambda row: number(row, "value"),
            )
            x = [_place(name, number(row, "value")) for row in line]
            draw_series(axes, line, x=x, place=place, label=f"{budget:g} tokens")
            for row in own:
                if row["budget"] == budget and row["searched"]:
                    mark_found(axes, _place(name, number(row, "value")), row, place=place)
        draw_full(axes, data.rows, AVERAGE)
        ticks = sorted({number(row, "value") for row in own if not row["searched"]})
        places = [_place(name, tick) for tick in ticks]
        axes.set_xticks(places, [brief(tick) for tick in ticks], rotation=90)  # some are close
        axes.set_xlabel(GREEK[name])
        title_panel(axes, letter, GREEK[name])
    panels[0].set_ylabel(f"{ACCURACY}, average")
    legend_above(figure, panels[0])
    return figure


def _place(name: str, value: float) -> float:
    """Place a value on its axis; τ/(1 + τ), so that its limits are the ends."""
    if name != "tau":
        return value
    return 1.0 if value == inf else value / (1 + value)
