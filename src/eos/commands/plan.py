"""`eos plan`: find or make a plan, print what it does and costs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from eos.commands.options import AsJson, Kind
from eos.errors import ConfigError


def plan(
    source: Annotated[
        str,
        typer.Argument(help="fastv@64, eos-miniature@64, a plan.json, or a run's folder."),
    ],
    budget: Annotated[
        int | None, typer.Option(help="Visual tokens; without it, the source's own.")
    ] = None,
    kind: Annotated[Kind, typer.Option(help="What the budget counts.")] = Kind.final,
    layers: Annotated[int, typer.Option(help="Depth of the decoder.")] = 32,
    tokens: Annotated[int, typer.Option(help="Visual tokens an image has.")] = 576,
    text: Annotated[int, typer.Option(help="Text tokens that costs assume.")] = 64,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a plan and print it with what it costs: final and mean tokens, FLOPs, KV cache."""
    from eos.space.specs import Target, read_spec

    target = Target(visual_tokens=tokens, num_layers=layers, text_tokens=text)
    found = dict(read_spec(source, target, budget=budget, kind=kind.value))
    if len(found) > 1 and (as_json or out is not None):
        raise ConfigError(
            f"expected one plan with --json or --out; found {', '.join(found)}. Name one budget"
        )
    for name, made in found.items():
        if out is not None:
            made.save(out)
            print(f"saved {out}", file=sys.stderr)
        title = f"{name}\n" if len(found) > 1 else ""
        print(made.to_json() if as_json else f"{title}{made}", end="" if as_json else "\n")
