"""Drawing: how all figures look, and how they are written.

A figure has two halves: rows of data, which become the CSV beside it, and a function that draws
those rows and nothing else. Fonts are matplotlib's own, colours those of Okabe and Ito, which
colour-blind readers can tell apart. The same rows give the same bytes: no dates, fixed ids.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from eos.errors import ConfigError
from eos.runs.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PlotRow: TypeAlias = Mapping[str, str | float | None]
WIDTH = 7.0  # inches: a page's text width
DPI = 200

# Okabe and Ito's colours; yellow, too light for lines on white, is left out
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8A9199"
CYCLE = (GREEN, BLUE, VERMILION, PURPLE, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
REGIMES = {
    "none": GREY,
    "prune": BLUE,
    "merge": VERMILION,
    "pool": SKY,
    "reweight": PURPLE,
    "own": ORANGE,
}

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.35,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "mathtext.fontset": "dejavusans",
    "svg.hashsalt": "eos",
    "svg.fonttype": "path",  # no fonts to look for on the reader's machine
    "pdf.fonttype": 42,
}
# Text and lines with the same contrast, about 4.2 to 1, on white and on a dark page.
BOTH = "#747C85"
ON_BOTH: dict[str, Any] = {
    "text.color": BOTH,
    "axes.labelcolor": BOTH,
    "axes.edgecolor": BOTH,
    "axes.titlecolor": BOTH,
    "xtick.color": BOTH,
    "ytick.color": BOTH,
    "grid.color": BOTH,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True)
class PlotData:
    """What a figure draws: rows, and pictures (PNG) that rows name."""

    rows: Sequence[PlotRow]
    pictures: Mapping[str, bytes] = field(default_factory=dict)


def write_figure(
    data: PlotData,
    draw: "Callable[[PlotData], Figure]",
    *,
    folder: Path,
    name: str,
    on_both: bool = False,
) -> list[Path]:
    """Write a figure as PDF, SVG and PNG, and the rows behind it as CSV.

    ``on_both``: the SVG is transparent, and readable on a white and on a dark page.
    """
    import matplotlib

    files = [folder / f"{name}.csv"]
    write_atomically(files[0], to_csv(data.rows))
    styles: dict[tuple[str, ...], Any] = {("pdf", "svg", "png"): STYLE}
    if on_both:
        styles = {("pdf", "png"): STYLE, ("svg",): {**STYLE, **ON_BOTH}}
    for formats, style in styles.items():
        with matplotlib.rc_context(style):
            figure = draw(data)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once, not for every format
            for form in formats:
                buffer = BytesIO()
                figure.savefig(buffer, format=form, dpi=DPI, metadata=_METADATA[form])
                files.append(folder / f"{name}.{form}")
                write_atomically(files[-1], buffer.getvalue())
    return files


def to_csv(rows: Sequence[PlotRow]) -> str:
    """Write rows as CSV; every key of any row is a column, a missing value an empty cell."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def check_matplotlib() -> None:
    """Raise unless figures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError(
            "expected the package matplotlib for figures, found none; install it with "
            "`pip install matplotlib`"
        ) from None


def new_figure(height: float, *, width: float = WIDTH) -> "Figure":
    """Make an empty figure; heights and widths in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def number(row: PlotRow, key: str) -> float:
    """Read a number of a row."""
    value = row[key]
    assert value is not None, f"no {key} in {row}"
    return float(value)


def brief(value: float) -> str:
    """Write a tick briefly.

    >>> brief(0.25), brief(-0.5), brief(1.0)
    ('.25', '−.5', '1')
    """
    text = f"{value:g}".replace("0.", ".", 1) if 0 < abs(value) < 1 else f"{value:g}"
    return text.replace("-", "−").replace("inf", "∞")


def title_panel(axes: "Axes", place: int, text: str) -> None:
    """Write a panel's letter and title above it, as the paper's subfigures have them."""
    axes.set_title(f"({'abcdefghij'[place]}) {text}", loc="left")


def log_budgets(axes: "Axes", budgets: Sequence[float]) -> None:
    """Show budgets on a logarithmic axis, each with its number."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets], rotation=45)
    axes.minorticks_off()
    axes.set_xlabel("final visual tokens")


# matplotlib writes the date unless told not to
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
