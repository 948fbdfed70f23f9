"""`eos plan`: find or make a plan, print what it does and costs."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from eos.commands.options import AsJson, Kind
from eos.errors import ConfigError


def plan(
    source: Annotated[
        str,
        typer.Argument(
            help="fastv@64, eos-miniature@64, a plan.json, a run's folder or hub:organisation/name."
        ),
    ],
    budget: Annotated[
        int | None, typer.Option(help="Visual tokens; without it, the source's own.")
    ] = None,
    kind: Annotated[Kind, typer.Option(help="What the budget counts.")] = Kind.final,
    layers: Annotated[
        int | None, typer.Option(help="Depth of the decoder; of a preset, 32 by default.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Visual tokens an image has; of a preset, 576 by default.")
    ] = None,
    text: Annotated[
        int | None, typer.Option(help="Text tokens that costs assume; of a preset, 64 by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a plan and print it with what it costs: final and mean tokens, FLOPs, KV cache."""
    from eos.space.specs import Target, read_spec

    options = {"num_layers": layers, "visual_tokens": tokens, "text_tokens": text}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    found = dict(read_spec(source, Target(**given), budget=budget, kind=kind.value))
    own = [name for name, made in found.items() if "preset" not in made.provenance]
    if given and own:
        raise ConfigError(
            f"expected --layers, --tokens and --text with a preset only; found "
            f"{', '.join(f'{k}={v}' for k, v in given.items())} for {own[0]!r}, which has sizes of "
            "its own"
        )
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
