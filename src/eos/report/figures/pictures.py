"""Figures on pictures: what each operator does with the tokens, and answers side by side."""

from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING, Any

from eos.evaluation.reproduction import ExampleItem, Examples
from eos.report.drawing import BLUE, GREEN, VERMILION, PlotData, PlotRow, new_figure, number
from eos.report.figures.overview import spread
from eos.report.reproduction import Reproduction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORDER = ("prune", "merge", "pool", "reweight", "searched")
SHOWN = 5  # questions side by side
COLUMNS = 3  # budgets beside the full model
PALE = 0.25  # of a dropped token
ARROWS = 80  # most flows drawn in a picture


def patches(reproduction: Reproduction) -> PlotData | None:
    """List the tokens of a picture under each operator: kept or dropped, and where they flow."""
    found = reproduction.one(Examples)
    if found is None:
        return None
    own, rows = found.operators, list[PlotRow]()
    for name in sorted(own.operators, key=ORDER.index):
        view = own.operators[name]
        scales = dict(zip(view.kept, view.scales, strict=True))
        rows += [_token(name, t, own.grid, kept=1, scale=scales[t]) for t in view.kept]
        for (token, anchor), weight in zip(view.flows, view.weights, strict=True):
            row = _token(name, token, own.grid, kept=0)
            rows.append({**row, "anchor": anchor, "weight": weight})
    head: PlotRow = {"layer": own.layer, "keep": own.keep, "score": own.score}
    return PlotData([{**head, **row} for row in rows], {"picture": _png(own.image)})


def _token(panel: str, token: int, grid: tuple[int, int], **values: float) -> PlotRow:
    return {"panel": panel, "token": token, "rows": grid[0], "columns": grid[1], **values}


def _png(uri: str) -> bytes:
    return b64decode(uri.partition(",")[2])


def draw_patches(data: PlotData) -> "Figure":
    """Draw a picture an operator: dropped tokens pale, arrows to the anchors that they go to."""
    names = list(dict.fromkeys(str(row["panel"]) for row in data.rows))
    figure = new_figure(1.95)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        own = [row for row in data.rows if row["panel"] == name]
        _show(axes, data.pictures["picture"], own)
        _arrows(axes, own)
        _scales(axes, own)
        axes.set_title(f"{name}: {_fate(own)}", fontsize=6.8)
    first = data.rows[0]
    figure.supxlabel(
        f"after layer {first['layer']}, {first['keep']} tokens kept by {first['score']}; circles: "
        "kept tokens whose norm grows (orange) or shrinks (green)",
        fontsize=7,
    )
    return figure


def _fate(rows: Sequence[PlotRow]) -> str:
    """Say what becomes of the dropped tokens."""
    dropped = [row for row in rows if not row["kept"]]
    moving = sum(row["anchor"] is not None for row in dropped)
    if moving:
        return f"{moving} of {len(dropped)}\ndropped go to an anchor"
    spread_out = any(number(row, "weight") > 0 for row in dropped)
    return "dropped ones spread\nover all anchors" if spread_out else "dropped ones\nleave no trace"


def _show(axes: "Axes", picture: bytes, rows: Sequence[PlotRow]) -> None:
    """Show a picture in units of tokens, dropped ones whitened."""
    from PIL import Image

    height, width = int(number(rows[0], "rows")), int(number(rows[0], "columns"))
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(Image.open(BytesIO(picture)).convert("RGB"), extent=extent)
    kept = {int(number(row, "token")) for row in rows if row["kept"]}
    veil = [
        [[1.0, 1.0, 1.0, 0.0 if y * width + x in kept else 1 - PALE] for x in range(width)]
        for y in range(height)
    ]
    axes.imshow(veil, extent=extent, interpolation="nearest")
    axes.set_axis_off()


def _arrows(axes: "Axes", rows: Sequence[PlotRow]) -> None:
    """Draw flows as arrows from token to anchor, thicker for a larger share; a sample of many."""
    flows = [row for row in rows if row.get("anchor") is not None]
    for row in flows[:: max(1, -(-len(flows) // ARROWS))]:
        start, end = _place(row, "token"), _place(row, "anchor")
        look: Any = {"arrowstyle": "-|>", "color": BLUE, "shrinkA": 0, "shrinkB": 0}
        look |= {"linewidth": 0.3 + 0.5 * number(row, "weight"), "mutation_scale": 3.5}
        axes.annotate("", end, xytext=start, arrowprops=look)


def _scales(axes: "Axes", rows: Sequence[PlotRow]) -> None:
    """Draw a circle where a kept token's norm changes, larger for a larger change."""
    for row in rows:
        change = number(row, "scale") - 1 if row["kept"] else 0.0
        if abs(change) > 0.02:
            colour = VERMILION if change > 0 else GREEN
            size = min(4.0, 1.0 + 4.0 * abs(change))
            axes.plot(*_place(row, "token"), "o", color=colour, markersize=size, markeredgewidth=0)


def _place(row: PlotRow, key: str) -> tuple[float, float]:
    token, width = int(number(row, key)), int(number(row, "columns"))
    return float(token % width), float(token // width)


def answers(reproduction: Reproduction) -> PlotData | None:
    """List the tokens left and the answers of some questions, beside the full model's."""
    found = reproduction.one(Examples)
    if found is None:
        return None
    rows, pictures = list[PlotRow](), {}
    budgets = spread(sorted(found.budgets, reverse=True), COLUMNS)
    for place, item in enumerate(chosen(found.items, budgets)):
        pictures[str(place)] = _png(item.image)
        head: PlotRow = {"question": item.question, "family": item.family, "reference": item.answer}
        every = range(item.grid[0] * item.grid[1])
        for budget in [0, *budgets]:
            run = item.plans.get(budget)
            answer = item.full.answer if budget == 0 else run.answer if run else ""
            kept = every if budget == 0 or run is None or not run.steps else run.steps[-1].kept
            own = {**head, "place": place, "budget": budget, "answer": answer}
            rows += [{**own, **_token("", token, item.grid, kept=1)} for token in kept]
    return PlotData(rows, pictures)


def chosen(items: Sequence[ExampleItem], budgets: Sequence[int]) -> list[ExampleItem]:
    """Choose one question a family, first those whose answers differ between the models."""

    def same(item: ExampleItem) -> bool:
        return all(item.plans[b].answer == item.full.answer for b in budgets if b in item.plans)

    families: dict[str, ExampleItem] = {}
    for item in sorted(items, key=same):
        families.setdefault(item.family, item)
    return list(families.values())[:SHOWN]


def draw_answers(data: PlotData) -> "Figure":
    """Draw a row a question, a column a model: the tokens that are left, the answer below."""
    places = list(dict.fromkeys(int(number(row, "place")) for row in data.rows))
    budgets = list(dict.fromkeys(number(row, "budget") for row in data.rows))
    figure = new_figure(1.55 * len(places), width=1.6 * (len(budgets) + 1))
    grid = figure.subplots(len(places), len(budgets) + 1, squeeze=False)
    for place, (label, *panels) in zip(places, grid, strict=True):
        own = [row for row in data.rows if row["place"] == place]
        label.set_axis_off()
        text = f"{fill(str(own[0]['question']), 20)}\n\n({own[0]['family']})"
        label.text(0, 0.5, text, va="center", fontsize=7.5, transform=label.transAxes)
        for axes, budget in zip(panels, budgets, strict=True):
            cell = [row for row in own if row["budget"] == budget]
            _show(axes, data.pictures[str(place)], cell)
            right = cell[0]["answer"] == cell[0]["reference"]
            mark, colour = ("✓", GREEN) if right else ("✗", VERMILION)
            answer = fill(f"{cell[0]['answer']} {mark}", 24)
            look: Any = {"ha": "center", "va": "top", "color": colour}
            axes.text(0.5, -0.05, answer, transform=axes.transAxes, **look)
            if place == places[0]:
                name = f"{budget:g} tokens" if budget else "full model"
                axes.set_title(name)
    return figure
