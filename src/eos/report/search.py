"""The tables of `eos search`: the operator at each layer (Table 6), the stages or the gap."""

from math import isinf
from pathlib import Path

from rich.console import Console
from rich.table import Table

from eos.estimates import Estimate
from eos.searching.result import SearchResult
from eos.space.plan import Plan
from eos.space.step import Operator

OPERATOR_COLUMNS = ("slot", "layer", "keep", "score", "γ", "τ", "θ", "ρ", "ν", "regime")


def regime_rows(plan: Plan) -> list[list[str]]:
    """Write the operator of every step as Table 6 does: τ and θ only where they act."""
    rows = []
    for slot, step in enumerate(plan.steps, start=1):
        assert isinstance(step.operator, Operator)
        gamma, tau, theta, rho, nu = (float(x) for x in step.operator.omega)
        idle = step.operator.regime.name == "prune"
        numbers = [f"{gamma:.3f}", *(["–", "–"] if idle else [_number(tau), _number(theta)])]
        numbers += [f"{rho:.3f}", f"{nu:.3f}"]
        name = step.operator.regime.name
        label = f"{name} corner" if name != "hybrid" else f"interior {step.operator.label}"
        where = [f"l{slot}", str(step.layer), str(step.keep), step.score]
        rows.append([*where, *numbers, label])
    return rows


def show_search(found: SearchResult, out: Path, *, width: int | None = None) -> None:
    """Print the found regime layer by layer, the plan's costs, and the discretisation gap."""
    console = Console(width=width)
    table = Table(title="The searched operator at each layer that reduces", title_justify="left")
    for column in OPERATOR_COLUMNS:
        table.add_column(
            column, justify="left" if column in ("slot", "score", "regime") else "right"
        )
    for row in regime_rows(found.plan):
        table.add_row(*row)
    console.print(table)
    cost = found.plan.expected
    console.print(
        f"{found.plan.backbone}, {_origin(found)}: {cost.final_tokens} final tokens, "
        f"{cost.mean_tokens:.1f} mean entering a layer, FLOPs x{cost.flops_ratio:.3f}, KV cache "
        f"x{cost.kv_bytes_ratio:.3f} (prefill with {cost.text_tokens} text tokens)",
        highlight=False,
    )
    if found.stages:
        console.print(_stages_table(found))
        console.print(
            f"saved {', '.join(str(path) for path in saved(found, out))}", highlight=False
        )
        return
    gaps = Table(
        title="Validation loss on the way from Θ to the plan (cross-entropy of the answers)",
        title_justify="left",
    )
    for column in ("budget", "full model", "Θ's own pass", "plan", "discretisation gap", "samples"):
        gaps.add_column(column, justify="right")
    for gap in found.gaps:
        cells = [_estimate(x) for x in (gap.full, gap.theta, gap.plan, gap.gap)]
        gaps.add_row(str(gap.budget), *cells, str(gap.samples))
    console.print(gaps)
    console.print(f"saved {out / 'theta.json'} and {out / 'plan.json'}", highlight=False)


def _origin(found: SearchResult) -> str:
    return f"method {found.start}" if found.stages else f"from the {found.start} start"


def saved(found: SearchResult, out: Path) -> list[Path]:
    """Name the files of a search for plans."""
    return [out / "plan.json", *(out / f"plan-{budget}.json" for budget in found.plans)]


def _stages_table(found: SearchResult) -> Table:
    """Show what each stage of the search found, and at what cost."""
    title = "How far the plan's answers are from the full model's, stage by stage"
    table = Table(title=title, title_justify="left")
    for column in ("budget", "stage", "plans tried", "disagreement", "passes", "after layers"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for budget, stages in found.stages.items():
        for stage in stages:
            steps = ", ".join(f"{step.layer}: {step.keep}" for step in stage.steps)
            row = [stage.name, str(stage.tried), _estimate(stage.disagreement)]
            table.add_row(str(budget), *row, f"{stage.passes:.0f}", steps)
    return table


def _estimate(value: Estimate) -> str:
    return f"{value.mean:.4f} ± {value.stderr:.4f}"


def _number(value: float) -> str:
    return str(value) if isinf(value) else f"{value:.3f}"
