"""Run `eos profile`: measure, show the curves as a table, draw them."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from eos.errors import ConfigError
from eos.reporting.search import load_placed
from eos.searching.files import read_config
from eos.searching.opening import pick_sources
from eos.searching.planner import find_profile, open_search
from eos.searching.processes import Processes
from eos.searching.profile import Profile

WIDTH = 100  # of tables that go to a file


def profile_and_show(arguments: list[str], *, out: Path, as_json: bool) -> None:
    """Measure the profile of a configuration's backbone with a progress bar; print and draw it."""
    named = [x for x in arguments[:1] if "=" not in x]
    config = read_config(named[0] if named else None, arguments[len(named) :])
    if config.method != "eos":
        raise ConfigError(
            f"expected method 'eos', whose searches start from profiles; found {config.method!r}"
        )
    processes = Processes()
    try:
        profile = _measured(config, processes, out)
    finally:
        processes.leave()
    if not processes.main:
        return
    if as_json:
        print(profile.to_json(), end="")
    else:
        show_profile(profile, width=None if sys.stdout.isatty() else WIDTH)
    files = [out / "profile.json", *draw_profile(profile, out / "profile.png")]
    print(f"saved {', '.join(map(str, files))}", file=sys.stderr)


def _measured(config: Any, processes: Processes, out: Path) -> Profile:
    backbone = load_placed(config, processes)
    sources = pick_sources(config.data, None, config)
    columns = (TextColumn("profile"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not processes.main
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=hidden
    ) as progress:
        bar = progress.add_task("", total=None)

        def watch(stage: str, done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        search = open_search(backbone, sources, config, processor=None, folder=out, watch=watch)
        return find_profile(search)


def best_curves(profile: Profile) -> dict[int, tuple[str, list[int], list[float], list[float]]]:
    """Name each site's best scorer, with its counts, disagreements and their standard errors."""
    found = {}
    for site in profile.sites:
        curves = profile.curves(site)
        name = min(curves, key=lambda name: sum(point.mean for point in curves[name]))
        points = curves[name]
        columns = zip(*((p.keep, p.mean, p.stderr) for p in points), strict=True)
        keeps, means, errors = (list(column) for column in columns)
        found[site] = (name, keeps, means, errors)
    return found


def show_profile(profile: Profile, *, width: int | None = None) -> None:
    """Print one row a site: its best scorer, and what keeping each count there costs."""
    curves = best_curves(profile)
    counts = next(iter(curves.values()))[1]
    title = "Disagreement with the full model after pruning at one site, best scorer"
    table = Table(title=title, title_justify="left")
    table.add_column("after layer", justify="right")
    table.add_column("score")
    for count in counts:
        table.add_column(f"keep {count}", justify="right")
    for site, (name, _, means, errors) in curves.items():
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(means, errors, strict=True)]
        table.add_row("input" if site < 0 else str(site), name, *cells)
    console = Console(width=width)
    console.print(table)
    samples = max(point.samples for point in profile.points)
    console.print(
        f"{profile.backbone}, {samples} samples of {profile.data.split()[0]} data, "
        f"{profile.passes:.0f} forward passes of one sample through the full decoder",
        highlight=False,
    )


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
    for place, (site, (name, counts, means, errors)) in enumerate(curves.items()):
        shade = 0.15 + 0.75 * place / max(1, len(curves) - 1)
        label = f"{'input' if site < 0 else site}: {name}"
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
