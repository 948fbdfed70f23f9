"""`eos search`: load, search with a progress bar, show what was found."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.commands import options
from eos.commands.dry_run import preview, show_dry_run
from eos.commands.terminal import progress_bar, table_width
from eos.errors import ConfigError, StoppedError

if TYPE_CHECKING:
    from eos.models.backbone import Backbone
    from eos.runs.processes import Processes
    from eos.searching.result import SearchResult
    from eos.searching.run import Status
    from eos.searching.settings import SearchConfig

WIDTH = 120  # of tables that go to a file


def search(
    arguments: options.Arguments = None,
    out: options.Out = Path("runs/search"),
    device: options.DeviceMap = None,
    dtype: options.DtypeChoice = None,
    attention: options.AttentionChoice = None,
    batch_size: options.MicroBatch = None,
    seed: options.ConfigSeed = None,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Search where, how much and how to reduce; ends with a plan.json.

    Several processes: accelerate launch --multi_gpu -m eos search ...
    """
    from eos.report.search import show_search
    from eos.runs.processes import Processes
    from eos.searching.files import read_config, trace_values

    source, changes = options.split_arguments(arguments)
    changes += options.changes_of(device=device, batch_size=batch_size, seed=seed)
    config, processes = read_config(source, changes), Processes()
    if dry_run:
        backbone = load_placed(config, processes, dtype=dtype, attention=attention)
        values, costs = trace_values(source, changes), preview(config, backbone)
        show_dry_run(values, costs, as_json=as_json, width=table_width(WIDTH))
        return
    try:
        found = search_watched(
            config, out, processes, dtype=dtype, attention=attention, quiet=quiet
        )
    finally:
        processes.leave()
    if not processes.main:
        return
    if as_json:
        print(json.dumps(as_data(found, out), indent=2, ensure_ascii=False))
    else:
        show_search(found, out, width=table_width(WIDTH))


def as_data(found: "SearchResult", out: Path) -> dict[str, Any]:
    """Give the answer as plain JSON data."""
    return {
        "out": str(out),
        "start": found.start,
        "plan": json.loads(found.plan.to_json()),
        "plans": {budget: json.loads(plan.to_json()) for budget, plan in found.plans.items()},
        "gaps": [gap.model_dump() for gap in found.gaps],
        "skipped": found.skipped,
    }


def search_watched(
    config: "SearchConfig",
    out: Path,
    processes: "Processes",
    *,
    dtype: options.Dtype | None = None,
    attention: options.Attention | None = None,
    quiet: bool = False,
) -> "SearchResult":
    """Search with a progress bar; a second Ctrl-C stops at once, with a note on how to resume."""
    from eos.models.processor import load_processor
    from eos.searching.opening import pick_sources
    from eos.searching.search import search as run_search

    options.check_before_loading(out)
    data, validation = pick_sources(config.data, None, config)
    try:
        backbone = load_placed(config, processes, dtype=dtype, attention=attention)
        processor = load_processor(config.backbone)
        with progress_bar("search", quiet=quiet or not processes.main) as update:

            def watch(status: "Status") -> None:
                notes = describe_status(status)
                update(status.done, status.total, label=status.start, notes=notes)

            return run_search(
                backbone,
                data,
                config,
                validation=validation,
                processor=processor,
                out=out,
                watch=watch,
            )
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped at once; {out} holds the last checkpoint. Rerun the same command to resume"
        ) from None


def load_placed(
    config: "SearchConfig",
    processes: "Processes",
    *,
    dtype: options.Dtype | None = None,
    attention: options.Attention | None = None,
) -> "Backbone":
    """Load the backbone of a configuration on its device; on the CPU if it will be sharded."""
    from eos.models.backbone import load_backbone

    precision = dtype and dtype.value
    if processes.sharding and config.device_map:
        raise ConfigError(
            f"expected no device_map with --use_fsdp, which spreads the backbone over processes; "
            f"found {config.device_map!r}"
        )
    if processes.sharding and processes.device.type != "cpu":
        precision = precision or "auto"
    place = "cpu" if processes.sharding else config.device_map or str(processes.device)
    return load_backbone(
        config.backbone,
        dtype=precision,
        device_map=place,
        attn_implementation=attention and attention.value,
    )


def describe_status(status: "Status") -> list[str]:
    """Describe the present step in a few words each, the loss first."""
    if status.loss is None:
        return []
    notes = [
        f"loss {status.loss:.4f}",
        f"N {status.final_tokens}",
        f"FLOPs x{status.flops_ratio:.3f}",
        f"Σg {status.active_layers:.2f}",
        f"layers {','.join(map(str, status.layers)) or 'none'}",
    ]
    return notes + ([f"skipped {status.skipped}"] if status.skipped else [])
