"""The table and the figure of `eos profile`."""

import sys
from pathlib import Path

from eos.report.layout import Grid, show
from eos.report.plans import site
from eos.searching.curves import Profile


def best_curves(profile: Profile) -> dict[int, tuple[str, list[int], list[float], list[float]]]:
    """Name each site's best scorer, with its counts, disagreements and their standard errors."""
    found = {}
    for layer in profile.sites:
        curves = profile.curves(layer)
        name = min(curves, key=lambda name: sum(point.mean for point in curves[name]))
        points = curves[name]
        columns = zip(*((p.keep, p.mean, p.stderr) for p in points), strict=True)
        keeps, means, errors = (list(column) for column in columns)
        found[layer] = (name, keeps, means, errors)
    return found


def show_profile(profile: Profile, *, width: int | None = None) -> None:
    """Print one row a site: its best scorer, and what keeping each count there costs."""
    curves = best_curves(profile)
    counts = next(iter(curves.values()))[1]
    title = "Disagreement with the full model after pruning at one site, best scorer"
    rows = []
    for layer, (name, _, means, errors) in curves.items():
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(means, errors, strict=True)]
        rows.append([site(layer), name, *cells])
    columns = ["after layer", "score", *(f"keep {count}" for count in counts)]
    samples = max(point.samples for point in profile.points)
    note = (
        f"{profile.backbone}, {samples} samples of {profile.data.split()[0]} data, "
        f"{profile.passes:.0f} forward passes of one sample through the full decoder"
    )
    show([Grid(columns, rows, title=title, keys=2), note], width=width)


def draw_profile(profile: Profile, path: Path) -> list[Path]:
    """Draw the curves, one line a site; nothing if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no figure: matplotlib is not installed (pip install matplotlib)", file=sys.stderr)
        return []
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.subplots()
    curves = best_curves(profile)
    for place, (layer, (name, counts, means, errors)) in enumerate(curves.items()):
        shade = 0.15 + 0.75 * place / max(1, len(curves) - 1)
        label = f"{site(layer)}: {name}"
        axes.errorbar(
            counts, means, yerr=errors, marker=".", color=(shade, 0.35, 1 - shade), label=label
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel(f"visual tokens kept of {profile.visual_tokens}")
    axes.set_ylabel("disagreement with the full model")
    axes.set_title("What dropping tokens after one layer costs")
    axes.legend(fontsize="x-small", title="after layer: score", title_fontsize="x-small")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    return [path]
