"""`eos verify`: the operator against references at its corners."""

import typer

from eos.commands.options import AsJson


def verify(as_json: AsJson = False) -> None:
    """Check that the operator is prune, merge, pool and reweight at its corners (Listing 3)."""
    from eos.evaluation.verify import verify as run_verification
    from eos.report.verification import show_verification

    verification = run_verification()
    if as_json:
        print(verification.to_json(), end="")
    else:
        show_verification(verification)
    if not verification.passed:
        raise typer.Exit(1)
