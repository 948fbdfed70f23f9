"""Figure 3: how far the unified operator is from each canonical operator at its corner."""

from typing import TYPE_CHECKING, Any

from eos.evaluation.verification import Verification
from eos.report.drawing import (
    BLACK,
    GREY,
    MARKERS,
    REGIMES,
    PlotData,
    PlotRow,
    new_figure,
    number,
    title_panel,
)
from eos.report.reproduction import Reproduction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOOR = 1e-17  # where an exact zero is drawn
TITLES = {
    "listing": "Listing 3, finite stand-ins: largest difference",
    "limits": "exact limits: difference relative to the largest entry",
}


def equivalence(reproduction: Reproduction) -> PlotData | None:
    """List the discrepancies of Listing 3, then of the exact limits by precision."""
    found = reproduction.one(Verification)
    if found is None:
        return None
    panels = {"listing": found.listing, "limits": found.limits}
    return PlotData(
        [{"panel": x, **check.model_dump()} for x, checks in panels.items() for check in checks]
    )


def draw_equivalence(data: PlotData) -> "Figure":
    """Draw a row a corner; what was found as a marker, the tolerance as a bar's end."""
    from matplotlib.lines import Line2D

    dtypes = list(dict.fromkeys(str(row["dtype"]) for row in data.rows))
    figure = new_figure(2.2)
    panels = figure.subplots(1, 2, sharey=True)
    for letter, (axes, panel) in enumerate(zip(panels, ("listing", "limits"), strict=True)):
        own = [row for row in data.rows if row["panel"] == panel]
        _draw_panel(axes, own, dtypes)
        title_panel(axes, letter, TITLES[panel])
    look: Any = {"color": BLACK, "linestyle": "none"}
    handles = [
        Line2D([], [], marker=MARKERS[i], label=name, **look) for i, name in enumerate(dtypes)
    ]
    handles.append(Line2D([], [], marker="|", label="tolerance", **{**look, "color": GREY}))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _draw_panel(axes: "Axes", rows: list[PlotRow], dtypes: list[str]) -> None:
    corners = list(dict.fromkeys(str(row["corner"]) for row in rows))
    shown = [name for name in dtypes if any(row["dtype"] == name for row in rows)]
    for row in rows:
        corner, place = str(row["corner"]), dtypes.index(str(row["dtype"]))
        offset = shown.index(str(row["dtype"])) - (len(shown) - 1) / 2
        y = corners.index(corner) + offset * 0.18
        bound, gap = number(row, "tolerance"), number(row, "discrepancy")
        axes.plot([FLOOR, max(bound, FLOOR)], [y, y], color=GREY, linewidth=0.7, alpha=0.6)
        axes.plot(max(bound, FLOOR), y, marker="|", color=GREY, markersize=7)
        axes.plot(max(gap, FLOOR), y, marker=MARKERS[place], color=REGIMES[corner], markersize=4.5)
        if gap == 0:
            axes.text(FLOOR * 3, y, "0", fontsize=6, va="center")
    axes.set_xscale("log")
    axes.set_xlim(FLOOR / 3, 0.1)
    axes.set_yticks(range(len(corners)), corners)
    axes.set_ylim(len(corners) - 0.5, -0.5)
    axes.set_xlabel("discrepancy")
