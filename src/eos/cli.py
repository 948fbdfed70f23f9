"""The command line: parse, call, print. Results on stdout, everything else on stderr.

Exit code 0: done; 1: a failure; 2: a usage error. Nothing heavy is imported before a command runs.
"""

import json
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from eos.commands.ablate import ablate
from eos.commands.ask import ask
from eos.commands.bench import bench
from eos.commands.doctor import doctor
from eos.commands.eval import evaluate
from eos.commands.fidelity import fidelity
from eos.commands.keys import SearchCommand
from eos.commands.ls import list_things
from eos.commands.plan import plan
from eos.commands.profile import profile
from eos.commands.report import report
from eos.commands.reproduce import reproduce
from eos.commands.search import search
from eos.commands.validate import validate
from eos.commands.verify import verify
from eos.errors import EosError, StoppedError
from eos.version import __version__

INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it
ABOUT = "EOS, Efficient Operator Search: make vision-language models cheaper to run."
VERBS: dict[str, Callable[..., None]] = {
    "verify": verify,
    "plan": plan,
    "search": search,
    "reproduce": reproduce,
    "ablate": ablate,
    "ls": list_things,
    "validate": validate,
    "bench": bench,
    "eval": evaluate,
    "ask": ask,
    "profile": profile,
    "fidelity": fidelity,
    "report": report,
    "doctor": doctor,
}

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=ABOUT,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, verb in VERBS.items():
    app.command(name, cls=SearchCommand if name == "search" else None)(verb)


def _version(given: bool) -> None:
    if given:
        print(f"eos {__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a verb."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        app(args=argv, prog_name="eos")
    except EosError as failure:
        if "--json" in (sys.argv[1:] if argv is None else argv):
            print(json.dumps({"error": str(failure), "kind": type(failure).__name__}))
        print(f"eos: {failure}", file=sys.stderr)
        return INTERRUPTED if isinstance(failure, StoppedError) else 1
    except KeyboardInterrupt:
        print("eos: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as leaving:  # typer raises it with every exit code, 0 included
        return leaving.code if isinstance(leaving.code, int) else 0
    return 0


def run() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(main())
