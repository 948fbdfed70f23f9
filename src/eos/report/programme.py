"""The short report of `eos reproduce`: what the search found, and every method beside it."""

from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path

from eos.evaluation.estimates import write_accuracy
from eos.evaluation.reproduction import Trajectory
from eos.evaluation.results import ResultRow, Results
from eos.evaluation.study import FULL_ROW, Study
from eos.report.comparison import budget_of, method_name
from eos.report.evaluation import markdown
from eos.report.search import OPERATOR_COLUMNS, regime_rows
from eos.space.plan import Plan
from eos.tables import markdown_table


def league(study: Study) -> tuple[Results, list[int]]:
    """Order rows by budget, then by accuracy; give the places of each budget's last row."""
    full = study.row(FULL_ROW)
    others = [row for row in study.rows if row.name != FULL_ROW]
    others.sort(key=lambda row: (-budget_of(row), -row.average.accuracy))
    changes = [budget_of(a) != budget_of(b) for a, b in pairwise(others)]
    ends = [place for place, last in enumerate([True, *changes]) if last]
    return as_results(study, [full, *others]), ends


def as_results(study: Study, rows: Sequence[ResultRow]) -> Results:
    """Give rows of a study the form of an evaluation's results."""
    kept = set(Results.model_fields) & set(Study.model_fields) - {"schema_", "rows", "families"}
    plain = [ResultRow(**{key: dict(row)[key] for key in ResultRow.model_fields}) for row in rows]
    shared = study.model_dump(include=kept)
    return Results(**shared, families=study.families, blank=False, rows=tuple(plain))


def report(study: Study, folder: Path, *, use: str) -> str:
    """Write the page: what was found, how it does, how to use it."""
    budgets = sorted({int(row.factors["budget"]) for row in study.rows if row.factors})[::-1]
    found = next(x for x in study.rows if x.searched and x.factors["budget"] == budgets[0])
    assert found.plan is not None
    rows = regime_rows(Plan(**found.plan))
    regimes = markdown_table(OPERATOR_COLUMNS, rows, align="l" * len(OPERATOR_COLUMNS))
    trajectory = Trajectory.load(folder / "trajectory.json")
    results, _ = league(study)
    return (
        f"# A search on {study.backbone}\n\n"
        f"Found at {found.cost.final_tokens} final tokens:\n\n"
        f"{regimes}\n\n{stages(trajectory)}\n"
        f"## Beside prior methods\n\n{glance(results, budgets)}\n{markdown(results)}\n"
        f"## Use the plan\n\n```python\n{use}```\n"
    )


def glance(results: Results, budgets: Sequence[int]) -> str:
    """Write one row a method with its FLOPs and accuracy at every budget; none is left out."""
    full, *others = results.rows
    found: dict[str, dict[int, ResultRow]] = {}
    for row in others:
        found.setdefault(method_name(row), {})[_nearest(row.cost.final_tokens, budgets)] = row
    most = budgets[0]
    ordered = sorted(found.items(), key=lambda pair: -pair[1][most].average.accuracy)
    head = ["method", *chain(*((f"FLOPs, {b} tokens", "accuracy, %") for b in budgets))]
    lines = [[f"`{full.name}`, all tokens", *_pair(full) * len(budgets)]]
    lines += [[f"`{name}`", *chain(*(_pair(rows[b]) for b in budgets))] for name, rows in ordered]
    return markdown_table(head, lines) + "\n"


def _pair(row: ResultRow) -> tuple[str, str]:
    return f"{row.cost.flops_ratio:.3f}", write_accuracy(row.average)


def stages(trajectory: Trajectory) -> str:
    """Write what each stage of the search found, as Markdown."""
    head = ["budget", "stage", "plans tried", "disagreement", "passes", "after layer: tokens left"]
    rows = []
    for stage in trajectory.stages:
        steps = ", ".join(f"{step['layer']}: {step['keep']}" for step in stage.steps)
        far = f"{stage.disagreement:.4f} ± {stage.stderr:.4f}"
        rows.append([stage.budget, stage.name, stage.tried, far, f"{stage.passes:.0f}", steps])
    return (
        f"{markdown_table(head, rows, align='rlrrrl')}\n\n"
        "Disagreement with the full model on the samples that the stage decided by, ± standard "
        "error; passes: forward passes of one question through the full decoder so far.\n"
    )


def _nearest(tokens: int, budgets: Sequence[int]) -> int:
    return min(budgets, key=lambda budget: abs(budget - tokens))
