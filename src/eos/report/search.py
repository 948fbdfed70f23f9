"""The tables of `eos search`: the operator at each layer (Table 6), the stages or the gap."""

from pathlib import Path

from eos.estimates import Estimate
from eos.report.layout import Grid, show
from eos.report.plans import StepView, operator_cells
from eos.searching.result import SearchResult
from eos.searching.run import skipped_files
from eos.space.plan import Plan

OPERATOR_COLUMNS = ("slot", "layer", "keep", "score", "γ", "τ", "θ", "ρ", "ν", "regime")


def regime_rows(plan: Plan) -> list[list[str]]:
    """Write the operator of every step as Table 6 does: τ and θ only where they act."""
    steps = [StepView(**step.model_dump(mode="json")) for step in plan.steps]
    return [
        [f"l{slot}", str(step.layer), str(step.keep), step.score, *operator_cells(step)]
        for slot, step in enumerate(steps, start=1)
    ]


def show_search(found: SearchResult, out: Path, *, width: int | None = None) -> None:
    """Print the found regime layer by layer, the plan's costs, and the discretisation gap."""
    title = "The searched operator at each layer that reduces"
    rows = regime_rows(found.plan)
    regimes = Grid(OPERATOR_COLUMNS, rows, title=title, left=("score", "regime"))
    cost = found.plan.expected
    note = (
        f"{found.plan.backbone}, {_origin(found)}: {cost.final_tokens} final tokens, "
        f"{cost.mean_tokens:.1f} mean entering a layer, FLOPs x{cost.flops_ratio:.3f}, KV cache "
        f"x{cost.kv_bytes_ratio:.3f} (prefill with {cost.text_tokens} text tokens)"
    )
    show([regimes, note, _stages_grid(found) if found.stages else _gaps_grid(found)], width=width)
    for line in closing(found, out):
        print(line)  # paths are not broken, so that they can be copied


def closing(found: SearchResult, out: Path) -> list[str]:
    """Name the files of a search, and say how many samples it could not use."""
    files = saved(found, out) if found.stages else [out / "theta.json", out / "plan.json"]
    lines = [f"saved {', '.join(map(str, files))}"]
    if found.skipped:
        where = ", ".join(map(str, skipped_files(out)))
        samples = "1 sample was" if found.skipped == 1 else f"{found.skipped} samples were"
        lines.append(f"{samples} skipped; ids and reasons: {where}")
    return lines


def _origin(found: SearchResult) -> str:
    return f"method {found.start}" if found.stages else f"from the {found.start} start"


def saved(found: SearchResult, out: Path) -> list[Path]:
    """Name the files of a search for plans."""
    return [out / "plan.json", *(out / f"plan-{budget}.json" for budget in found.plans)]


def _stages_grid(found: SearchResult) -> Grid:
    """Show what each stage of the search found, and at what cost."""
    rows = []
    for budget, stages in found.stages.items():
        for stage in stages:
            steps = ", ".join(f"{step.layer}: {step.keep}" for step in stage.steps)
            row = [stage.name, str(stage.tried), _estimate(stage.disagreement)]
            rows.append([str(budget), *row, f"{stage.passes:.0f}", steps])
    columns = ["budget", "stage", "plans tried", "disagreement", "passes", "after layers"]
    title = "How far the plan's answers are from the full model's, stage by stage"
    return Grid(columns, rows, title=title, keys=2)


def _gaps_grid(found: SearchResult) -> Grid:
    """Show the losses on the way from Θ to the plans."""
    rows = []
    for gap in found.gaps:
        cells = [_estimate(x) for x in (gap.full, gap.theta, gap.plan, gap.gap)]
        rows.append([str(gap.budget), *cells, str(gap.samples)])
    columns = ["budget", "full model", "Θ's own pass", "plan", "discretisation gap", "samples"]
    title = "Validation loss on the way from Θ to the plan (cross-entropy of the answers)"
    return Grid(columns, rows, title=title)


def _estimate(value: Estimate) -> str:
    return f"{value.mean:.4f} ± {value.stderr:.4f}"
