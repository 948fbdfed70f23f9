"""`eos search --dry-run`: show the effective configuration, the limits and the expected cost."""

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from eos.models.backbone import Backbone
    from eos.searching.files import TracedValue
    from eos.searching.preview import BudgetPreview, SearchPreview
    from eos.searching.settings import SearchConfig

GIB = 2**30
NOTE = (
    "Passes are of one sample through the full decoder, a reduced one counted by its FLOPs, a "
    "backward one as two. Races and moves may end earlier. Memory is that of the measured forward "
    "passes; gradients need more (recompute=true, micro_batch=1 need less)."
)


def preview(config: "SearchConfig", backbone: "Backbone") -> "SearchPreview":
    """Open the data of a configuration and time a few passes."""
    from eos.models.processor import load_processor
    from eos.searching.opening import pick_sources
    from eos.searching.preview import preview_search

    sources = pick_sources(config.data, None, config)
    return preview_search(backbone, sources, config, processor=load_processor(config.backbone))


def show_dry_run(
    values: "list[TracedValue]", found: "SearchPreview", *, as_json: bool, width: int | None
) -> None:
    """Print what a search would do; nothing is written."""
    if as_json:
        print(json.dumps(as_data(values, found), indent=2, ensure_ascii=False))
        return
    console = Console(width=width)
    console.print(_values_table(values))
    console.print(_budgets_table(found))
    for line in summary(found):
        console.print(line, highlight=False, markup=False)


def as_data(values: "list[TracedValue]", found: "SearchPreview") -> dict[str, Any]:
    """Give the same as plain JSON data."""
    numbers = {key: value for key, value in vars(found).items() if key != "budgets"}
    return {
        "config": {x.key: {"value": x.value, "origin": x.origin} for x in values},
        **numbers,
        "passes": found.passes,
        "seconds": found.seconds,
        "budgets": [_budget_data(own) for own in found.budgets],
    }


def summary(found: "SearchPreview") -> list[str]:
    """Say in lines what the search works on, and what it takes."""
    memory = f"weights {_gib(found.weights_bytes)}, this process {_gib(found.process_bytes)}"
    if found.accelerator_bytes:
        memory += f", accelerator {_gib(found.accelerator_bytes)}"
    if found.cache_bytes:
        memory += f"; a search keeps up to {_gib(found.cache_bytes)} of the full model's answers"
    takes = f"{duration(found.seconds)} in one process"
    return [
        f"{found.backbone}: {found.num_layers} layers, {found.visual_tokens} visual tokens.",
        f"Learns from: {found.train}. Measures on: {found.validation}.",
        f"Expected: about {found.passes:,.0f} passes ({found.profile_passes:,.0f} of them for the "
        f"profile) of {1000 * found.pass_seconds:.1f} ms: {takes}.",
        f"Memory: {memory}; {_gib(found.free_bytes)} are free.",
        NOTE,
        "Dry run: nothing was written.",
    ]


def duration(seconds: float) -> str:
    """Write a time as people say it.

    >>> duration(42), duration(200), duration(9000)
    ('42 s', '3.3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _values_table(values: "list[TracedValue]") -> Table:
    table = Table(title="Configuration", title_justify="left")
    for column in ("key", "value", "from"):
        table.add_column(column, overflow="fold")
    for value in values:
        written = json.dumps(value.value, ensure_ascii=False)
        style = "dim" if value.origin == "default" else None
        table.add_row(value.key, escape(written), escape(value.origin), style=style)
    return table


def _budgets_table(found: "SearchPreview") -> Table:
    table = Table(
        title="Limits of each budget, and the cost of a plan to start from", title_justify="left"
    )
    for column in ("budget", "FLOPs at most", "steps at most", "sites", "starts with"):
        table.add_column(column)
    for column in ("mean tokens", "FLOPs", "KV cache", "passes"):
        table.add_column(column, justify="right")
    for own in found.budgets:
        cost = own.start.expected
        steps = ", ".join(f"{step.layer}: {step.keep}" for step in own.start.steps)
        limits = [str(own.budget), f"{own.max_flops:.3f}", str(own.max_layers)]
        sites = f"{len(own.sites)} ({own.sites[0]} to {own.sites[-1]})"
        costs = [f"{cost.mean_tokens:.1f}", f"{cost.flops_ratio:.3f}", f"{cost.kv_bytes_ratio:.3f}"]
        table.add_row(*limits, sites, steps, *costs, f"{own.passes:,.0f}")
    return table


def _budget_data(own: "BudgetPreview") -> dict[str, Any]:
    return {
        "budget": own.budget,
        "max_flops": own.max_flops,
        "max_layers": own.max_layers,
        "sites": list(own.sites),
        "start": json.loads(own.start.to_json()),
        "passes": own.passes,
    }


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
