"""The command line: parse, call, print. Results on stdout, everything else on stderr.

Exit code 0: done; 1: a failure; 2: a usage error. Nothing heavy is imported before a command runs.
"""

import json
import sys
from typing import Annotated

import typer

from eos.errors import EosError
from eos.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="EOS, Efficient Operator Search: make vision-language models cheaper to run.",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"eos {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """EOS, Efficient Operator Search: make vision-language models cheaper to run."""


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Check that the operator is prune, merge, pool and reweight at its corners (Listing 3)."""
    from eos.evaluation.verify import verify as run_verification
    from eos.reporting.verification import show_verification

    verification = run_verification()
    if as_json:
        print(json.dumps(verification.to_dict(), indent=2))
    else:
        show_verification(verification)
    if not verification.passed:
        raise typer.Exit(1)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        app(args=argv, prog_name="eos")
    except EosError as failure:
        print(f"eos: {failure}", file=sys.stderr)
        return 1
    except SystemExit as leaving:  # how typer says every exit code, 0 included
        return leaving.code if isinstance(leaving.code, int) else 0
    return 0


def run() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(main())
