"""Run `eos search`: load, search with a progress bar, show what was found."""

import json
import sys
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from eos.errors import ConfigError, EosError
from eos.models.backbone import Backbone, load_backbone
from eos.models.processor import load_processor, locate
from eos.report.search import show_search
from eos.searching.files import read_config
from eos.searching.processes import Processes
from eos.searching.result import SearchResult
from eos.searching.run import Status
from eos.searching.search import search
from eos.searching.settings import SearchConfig

WIDTH = 120  # of tables that go to a file


def search_and_show(
    *, source: str | None, changes: list[str], out: Path, as_json: bool, quiet: bool = False
) -> None:
    """Search as a configuration says; print the regimes, the plan and its gap, or JSON."""
    config = read_config(source, changes)
    processes = Processes()
    try:
        found = search_watched(config, out, processes, quiet=quiet)
    finally:
        processes.leave()
    if not processes.main:
        return
    if as_json:
        print(json.dumps(as_data(found, out), indent=2, ensure_ascii=False))
    else:
        show_search(found, out, width=None if sys.stdout.isatty() else WIDTH)


def as_data(found: SearchResult, out: Path) -> dict[str, Any]:
    """Say the same for machines."""
    return {
        "out": str(out),
        "start": found.start,
        "plan": json.loads(found.plan.to_json()),
        "plans": {budget: json.loads(plan.to_json()) for budget, plan in found.plans.items()},
        "gaps": [gap.model_dump() for gap in found.gaps],
    }


def search_watched(
    config: SearchConfig, out: Path, processes: Processes, *, quiet: bool = False
) -> SearchResult:
    """Search with a progress bar; a second Ctrl-C, which waits for nothing, says how to go on."""
    try:
        return _searched(config, out, processes, quiet=quiet)
    except KeyboardInterrupt:
        raise EosError(
            f"stopped at once; {out} holds the last checkpoint. The same command goes on from there"
        ) from None


def load_placed(config: SearchConfig, processes: Processes) -> Backbone:
    """Load the backbone where it belongs: where all of it fits first, if it will be sharded."""
    source = locate(config.backbone)
    if not processes.sharding:
        return load_backbone(source, device_map=config.device_map or str(processes.device))
    if config.device_map:
        raise ConfigError(
            f"expected no device_map with --use_fsdp, which spreads the backbone over processes; "
            f"found {config.device_map!r}"
        )
    dtype: Literal["auto"] | None = None if processes.device.type == "cpu" else "auto"
    return load_backbone(source, dtype=dtype, device_map="cpu")


def _searched(
    config: SearchConfig, out: Path, processes: Processes, *, quiet: bool
) -> SearchResult:
    backbone = load_placed(config, processes)
    processor = load_processor(config.backbone)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.fields[init]}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    hidden = quiet or not processes.main
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("", total=None, init="search")

        def watch(status: Status) -> None:
            progress.update(
                bar,
                completed=status.done,
                total=status.total,
                description=describe_status(status),
                init=status.start,
            )

        return search(backbone, config.data, config, processor=processor, out=out, watch=watch)


def describe_status(status: Status) -> str:
    """Say in a line where a search is."""
    if status.loss is None:
        return ""
    layers = ",".join(map(str, status.layers)) or "none"
    skipped = f" skipped {status.skipped}" if status.skipped else ""
    return (
        f"loss {status.loss:.4f}  N {status.final_tokens}  Σg {status.active_layers:.2f}  "
        f"FLOPs x{status.flops_ratio:.3f}  layers {layers}{skipped}"
    )
