"""`eos data`: prepare data to search on."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eos.commands.options import AsJson, Quiet, Seed
from eos.commands.terminal import progress_bar

if TYPE_CHECKING:
    from eos.data.mix_files import MixManifest


def balanced_mix(
    mix: Annotated[Path, typer.Option(help="LLaVA's llava_v1_5_mix665k.json.")],
    images: Annotated[Path, typer.Option(help="Folder of its images: coco, gqa, textvqa …")],
    scienceqa: Annotated[
        Path, typer.Option(help="Folder of problems.json, pid_splits.json and images/train.")
    ],
    evaluated: Annotated[
        list[Path],
        typer.Option(
            "--eval",
            help="Images that are evaluated on: a folder, or a file that names them; repeatable.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The mixture, in LLaVA's JSON; others beside it.")],
    size: Annotated[int, typer.Option(min=1, help="Samples of the mixture.")] = 50_000,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Draw the paper's search data from LLaVA-mix-665K and ScienceQA, without evaluation images."""
    from eos.data.mix_files import make_mix
    from eos.runs.files import check_file

    check_file(out)
    total = mix.stat().st_size if mix.exists() else None
    with progress_bar("bytes", quiet=quiet) as update:
        made = make_mix(
            mix,
            images,
            scienceqa=scienceqa,
            evaluated=evaluated,
            out=out,
            size=size,
            seed=seed,
            watch=lambda done: update(done, total),
        )
    print(f"saved {out}", file=sys.stderr)
    print(made.to_json() if as_json else described(made), end="")


def described(made: "MixManifest") -> str:
    """Write the counts of a mixture as a table."""
    from eos.tables import text_table

    rows = [
        [name, str(x.available), str(x.kept), *_reasons(x.dropped)]
        for name, x in made.sources.items()
    ]
    heads = ("source", "available", "kept", "dropped")
    return f"{text_table(heads, rows)}\n{made.kept} of {made.size} samples, seed {made.seed}\n"


def _reasons(dropped: dict[str, int]) -> list[str]:
    return [", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "0"]
