"""`eos profile`: measure, show the curves as a table, draw them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eos.commands import options
from eos.commands.search import load_placed
from eos.commands.terminal import progress_bar, show_result
from eos.errors import ConfigError

if TYPE_CHECKING:
    from eos.data.samples import Source
    from eos.models.backbone import Backbone
    from eos.searching.curves import Profile
    from eos.searching.run import Status
    from eos.searching.settings import SearchConfig

WIDTH = 100  # of tables that go to a file


def profile(
    arguments: options.Arguments = None,
    out: options.Out = Path("runs/profile"),
    device: options.DeviceMap = None,
    dtype: options.DtypeChoice = None,
    attention: options.AttentionChoice = None,
    batch_size: options.MicroBatch = None,
    seed: options.ConfigSeed = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure what dropping tokens costs at every layer, by every scorer, down to every count.

    Later searches start from it: eos search explore.profile=runs/profile/profile.json
    """
    from eos.report.profile import draw_profile, show_profile
    from eos.runs.processes import Processes
    from eos.searching.files import read_config
    from eos.searching.opening import pick_sources

    source, changes = options.split_arguments(arguments)
    changes += options.changes_of(device=device, batch_size=batch_size, seed=seed)
    config = read_config(source, changes)
    if config.method != "eos":
        raise ConfigError(
            f"expected method 'eos', whose searches start from profiles; found {config.method!r}"
        )
    processes = Processes()
    try:
        options.check_before_loading(out)
        sources = pick_sources(config.data, None, config)
        backbone = load_placed(config, processes, dtype=dtype, attention=attention)
        found = profile_watched(backbone, sources, config, out, quiet=quiet or not processes.main)
    finally:
        processes.leave()
    if not processes.main:
        return
    show_result(found, show_profile, as_json=as_json, width=WIDTH)
    files = [out / "profile.json", *draw_profile(found, out / "profile.png")]
    print(f"saved {', '.join(map(str, files))}", file=sys.stderr)


def profile_watched(
    backbone: "Backbone",
    sources: "tuple[Source, Source]",
    config: "SearchConfig",
    out: Path,
    *,
    quiet: bool,
) -> "Profile":
    """Measure the profile of a configuration's backbone with a progress bar."""
    from eos.runs.lock import locked
    from eos.runs.processes import Processes
    from eos.searching.planner import find_profile, open_search

    with progress_bar("profile", quiet=quiet) as update:

        def watch(status: "Status") -> None:
            update(status.done, status.total)

        with locked(out, main=Processes().main):
            opened = open_search(backbone, sources, config, processor=None, folder=out, watch=watch)
            return find_profile(opened)
