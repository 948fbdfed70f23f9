"""Run `eos search`: load, search with a progress bar, show what was found."""

import json
import sys
from math import isinf
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
from rich.table import Table

from eos.errors import ConfigError, EosError
from eos.models.backbone import Backbone, load_backbone
from eos.models.processor import load_processor, locate
from eos.searching.files import read_config
from eos.searching.measure import Estimate
from eos.searching.processes import Processes
from eos.searching.run import Status
from eos.searching.search import Answer, find
from eos.searching.settings import SearchConfig
from eos.space.plan import Plan
from eos.space.step import Operator

WIDTH = 120  # of tables that go to a file
COLUMNS = ("slot", "layer", "keep", "score", "γ", "τ", "θ", "ρ", "ν", "regime")


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


def regime_rows(plan: Plan) -> list[list[str]]:
    """Write the operator of every step as Table 6 does: τ and θ only where they act."""
    rows = []
    for slot, step in enumerate(plan.steps, start=1):
        assert isinstance(step.operator, Operator)
        gamma, tau, theta, rho, nu = (float(x) for x in step.operator.omega)
        idle = step.operator.regime.name == "prune"
        numbers = [f"{gamma:.3f}", *(["–", "–"] if idle else [_number(tau), _number(theta)])]
        numbers += [f"{rho:.3f}", f"{nu:.3f}"]
        name = step.operator.regime.name
        label = f"{name} corner" if name != "hybrid" else f"interior {step.operator.label}"
        where = [f"l{slot}", str(step.layer), str(step.keep), step.score]
        rows.append([*where, *numbers, label])
    return rows


def show_search(found: Answer, out: Path, *, width: int | None = None) -> None:
    """Print the found regime layer by layer, the plan's costs, and the discretisation gap."""
    console = Console(width=width)
    table = Table(title="The searched operator at each layer that reduces", title_justify="left")
    for column in COLUMNS:
        table.add_column(
            column, justify="left" if column in ("slot", "score", "regime") else "right"
        )
    for row in regime_rows(found.plan):
        table.add_row(*row)
    console.print(table)
    cost = found.plan.expected
    console.print(
        f"{found.plan.backbone}, {_origin(found)}: {cost.final_tokens} final tokens, "
        f"{cost.mean_tokens:.1f} mean entering a layer, FLOPs x{cost.flops_ratio:.3f}, KV cache "
        f"x{cost.kv_bytes_ratio:.3f} (prefill with {cost.text_tokens} text tokens)",
        highlight=False,
    )
    if found.stages:
        console.print(_stages_table(found))
        console.print(
            f"saved {', '.join(str(path) for path in saved(found, out))}", highlight=False
        )
        return
    gaps = Table(
        title="Validation loss on the way from Θ to the plan (cross-entropy of the answers)",
        title_justify="left",
    )
    for column in ("budget", "full model", "Θ's own pass", "plan", "discretisation gap", "samples"):
        gaps.add_column(column, justify="right")
    for gap in found.gaps:
        cells = [_estimate(x) for x in (gap.full, gap.theta, gap.plan, gap.gap)]
        gaps.add_row(str(gap.budget), *cells, str(gap.samples))
    console.print(gaps)
    console.print(f"saved {out / 'theta.json'} and {out / 'plan.json'}", highlight=False)


def _origin(found: Answer) -> str:
    return f"method {found.start}" if found.stages else f"from the {found.start} start"


def saved(found: Answer, out: Path) -> list[Path]:
    """Name the files of a search for plans."""
    return [out / "plan.json", *(out / f"plan-{budget}.json" for budget in found.plans)]


def _stages_table(found: Answer) -> Table:
    """Show what each stage of the search found, and at what cost."""
    title = "How far the plan's answers are from the full model's, stage by stage"
    table = Table(title=title, title_justify="left")
    for column in ("budget", "stage", "plans tried", "disagreement", "passes", "after layers"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for budget, stages in found.stages.items():
        for stage in stages:
            steps = ", ".join(f"{step.layer}: {step.keep}" for step in stage.steps)
            row = [stage.name, str(stage.tried), _estimate(stage.disagreement)]
            table.add_row(str(budget), *row, f"{stage.passes:.0f}", steps)
    return table


def as_data(found: Answer, out: Path) -> dict[str, Any]:
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
) -> Answer:
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


def _searched(config: SearchConfig, out: Path, processes: Processes, *, quiet: bool) -> Answer:
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

        return find(backbone, config.data, config, processor=processor, out=out, watch=watch)


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


def _estimate(value: Estimate) -> str:
    return f"{value.mean:.4f} ± {value.stderr:.4f}"


def _number(value: float) -> str:
    return str(value) if isinf(value) else f"{value:.3f}"
