"""The tables of `eos verify`."""

from rich.console import Console
from rich.table import Table

from eos.evaluation.verify import STAND_IN_BOUND, Check, Verification


def show_verification(verification: Verification) -> None:
    """Print Listing 3, the exact limits, and how far the finite stand-ins can be trusted."""
    console = Console()
    console.print(
        _table(
            "Listing 3: seed 42, finite stand-ins, max|unified - reference|", verification.listing
        )
    )
    console.print(
        _table("Exact limits: worst case, relative to the largest entry", verification.limits)
    )
    if verification.near_ties:
        console.print(f"{verification.near_ties} merge cases set aside: two anchors nearly tie.")
    for trial in verification.stand_ins:
        kept, other, width = trial.shape
        console.print(
            f"tau = 1e-4 instead of the limit 0 at K={kept}, M={other}, D={width}: "
            f"{trial.share_above:.0%} of {trial.seeds} seeds differ from hard merging by more than "
            f"{STAND_IN_BOUND:g} (worst {trial.worst:.2g})."
        )
    console.print("[green]verified[/green]" if verification.passed else "[red]NOT verified[/red]")


def _table(title: str, checks: list[Check]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("corner", "dtype"):
        table.add_column(column)
    for column in ("cases", "discrepancy", "tolerance"):
        table.add_column(column, justify="right")
    table.add_column("")
    for check in checks:
        verdict = "ok" if check.passed else "[red]above[/red]"
        numbers = (str(check.cases), f"{check.discrepancy:.2e}", f"{check.tolerance:.2e}")
        table.add_row(check.corner.upper(), check.dtype, *numbers, verdict)
    return table
