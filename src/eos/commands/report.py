"""`eos report`: tables, figures and the page, from result files alone."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from eos.commands.options import AsJson, Quiet


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Folders of `eos reproduce`, folders with plans and results, or a results.json.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("runs/report"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write every table and figure of the paper from result files; no model is loaded.

    Results of different backbones, questions or versions are kept apart.
    """
    from eos.report.build import build

    made = build(folders, out)
    if as_json:
        missing = {each.label: each.missing for each in made.missing}
        found = {"files": [str(path) for path in made.files], "missing": missing}
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if not quiet:
        for each in made.missing:
            print(f"not made: {each.label}: {each.missing}", file=sys.stderr)
    print(f"{len(made.files)} files in {out}; start at {out / 'index.md'}")
