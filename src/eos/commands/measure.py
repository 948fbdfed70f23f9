"""Commands that measure a backbone: `eos profile` and `eos fidelity`."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]


def profile(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [KEY=VALUE]...",
            help="As of `eos search`: the backbone, the data, scorers, explore.profile_samples.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of profile.json; rerun to resume.")] = Path(
        "runs/profile"
    ),
    as_json: AsJson = False,
) -> None:
    """Measure what dropping tokens costs at every layer, by every scorer, down to every count.

    Later searches start from it: eos search explore.profile=runs/profile/profile.json
    """
    from eos.commands.profile import profile_and_show

    profile_and_show(arguments or [], out=out, as_json=as_json)


def fidelity(
    out: Annotated[Path, typer.Option(help="Folder of fidelity.json and fidelity.md.")],
    backbone: Annotated[
        str, typer.Option(help="'miniature', a folder, or a model's name on the hub.")
    ] = "miniature",
    samples: Annotated[int, typer.Option(help="Questions of the world to measure on.")] = 240,
    batch: Annotated[int, typer.Option(help="Questions at once.")] = 8,
    fractions: Annotated[
        str, typer.Option(help="Kept of the visual tokens, with commas between.")
    ] = "0.5,0.2,0.05",
    seed: Annotated[int, typer.Option(help="Of the questions.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the gradients of a search with what removing tokens really does, layer by layer."""
    from eos.commands.fidelity import fidelity_and_show

    fidelity_and_show(
        backbone=backbone,
        samples=samples,
        batch=batch,
        fractions=fractions,
        seed=seed,
        out=out,
        as_json=as_json,
    )
