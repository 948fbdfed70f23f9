"""The tables of `eos verify`."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from eos.evaluation.verification import Check, Verification
from eos.evaluation.verify import STAND_IN_BOUND
from eos.report.layout import Cell, Grid, show_grid


def show_verification(verification: Verification, *, width: int | None = None) -> None:
    """Print Listing 3, the exact limits, and how far the finite stand-ins can be trusted."""
    console = Console(width=width)
    first = "Listing 3: seed 42, finite stand-ins, max|unified - reference|"
    show_grid(console, _grid(first, verification.listing))
    second = "Exact limits: worst case, relative to the largest entry"
    show_grid(console, _grid(second, verification.limits))
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


def _grid(title: str, checks: Sequence[Check]) -> Grid:
    rows: list[list[Cell]] = []
    for check in checks:
        verdict = Text("ok") if check.passed else Text("above", style="red")
        numbers = (str(check.cases), f"{check.discrepancy:.2e}", f"{check.tolerance:.2e}")
        rows.append([check.corner.upper(), check.dtype, *numbers, verdict])
    columns = ["corner", "dtype", "cases", "discrepancy", "tolerance", ""]
    return Grid(columns, rows, title=title, keys=2, left=("",))
