"""Run `eos profile`: measure, show the curves as a table, draw them."""

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eos.commands.search import load_placed
from eos.errors import ConfigError
from eos.report.profile import draw_profile, show_profile
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
