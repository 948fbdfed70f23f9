"""The short report of `eos reproduce`: what the search found, and every method beside it."""

from collections.abc import Sequence
from pathlib import Path

from eos.evaluation.reproduction import Trajectory
from eos.evaluation.results import ResultRow, Results
from eos.evaluation.study import FULL_ROW, Study, StudyRow
from eos.report.evaluation import markdown
from eos.report.search import OPERATOR_COLUMNS, regime_rows
from eos.space.plan import Plan


def league(study: Study) -> tuple[Results, list[int]]:
    """Order rows by budget, then by accuracy; give the places of each budget's last row."""
    full = study.row(FULL_ROW)
    groups: dict[float, list[StudyRow]] = {}
    for row in study.rows:
        if row.name != FULL_ROW:
            budget = float(row.factors.get("budget", row.cost.final_tokens))
            groups.setdefault(budget, []).append(row)
    ordered = [
        sorted(groups[budget], key=lambda row: -row.average.accuracy)
        for budget in sorted(groups, reverse=True)
    ]
    ends = [sum(len(rows) for rows in ordered[:place]) for place in range(len(ordered))]
    rows = (full, *(row for rows in ordered for row in rows))
    return as_results(study, rows), ends


def as_results(study: Study, rows: Sequence[ResultRow]) -> Results:
    """Give rows of a study the form of an evaluation's results."""
    kept = set(Results.model_fields) & set(Study.model_fields) - {"schema_", "rows", "families"}
    plain = [ResultRow(**{key: dict(row)[key] for key in ResultRow.model_fields}) for row in rows]
    shared = study.model_dump(include=kept)
    return Results(**shared, families=study.families, blank=False, rows=tuple(plain))


def report(study: Study, folder: Path, *, use: str) -> str:
    """Write the page: what was found, how it does, how to use it."""
    head = " | ".join(OPERATOR_COLUMNS)
    budgets = sorted({int(row.factors["budget"]) for row in study.rows if row.factors})[::-1]
    found = next(x for x in study.rows if x.searched and x.factors["budget"] == budgets[0])
    assert found.plan is not None
    regimes = "\n".join(f"| {' | '.join(row)} |" for row in regime_rows(Plan(**found.plan)))
    course = Trajectory.load(folder / "trajectory.json")
    results, _ = league(study)
    return (
        f"# A search on {study.backbone}\n\n"
        f"Found at {found.cost.final_tokens} final tokens:\n\n"
        f"| {head} |\n|{'---|' * len(OPERATOR_COLUMNS)}\n{regimes}\n\n{stages(course)}\n"
        f"## Beside prior methods\n\n{glance(results, budgets)}\n{markdown(results)}\n"
        f"## Use the plan\n\n```python\n{use}```\n"
    )


def glance(results: Results, budgets: Sequence[int]) -> str:
    """Write one row a method with its FLOPs and accuracy at every budget; none is left out."""
    full, *others = results.rows
    found: dict[str, dict[int, ResultRow]] = {}
    for row in others:
        name = row.name.partition("@")[0]
        found.setdefault(name, {})[_nearest(row.cost.final_tokens, budgets)] = row
    most = budgets[0]
    ordered = sorted(found.items(), key=lambda pair: -pair[1][most].average.accuracy)
    heads = "".join(f" FLOPs, {budget} tokens | accuracy, % |" for budget in budgets)
    lines = [f"| method |{heads}", f"|---|{'---:|' * 2 * len(budgets)}"]
    lines.append(f"| `{full.name}`, all tokens |" + f" 1.000 | {_accuracy(full)} |" * len(budgets))
    for name, rows in ordered:
        cells = [f"{rows[b].cost.flops_ratio:.3f} | {_accuracy(rows[b])}" for b in budgets]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracy(row: ResultRow) -> str:
    return f"{row.average.accuracy:.1f} ± {row.average.stderr:.1f}"


def stages(course: Trajectory) -> str:
    """Write what each stage of the search found, as Markdown."""
    lines = ["| budget | stage | plans tried | disagreement | passes | after layer: tokens left |"]
    lines.append("|---:|---|---:|---:|---:|---|")
    for stage in course.stages:
        steps = ", ".join(f"{step['layer']}: {step['keep']}" for step in stage.steps)
        lines.append(
            f"| {stage.budget} | {stage.name} | {stage.tried} | {stage.disagreement:.4f} ± "
            f"{stage.stderr:.4f} | {stage.passes:.0f} | {steps} |"
        )
    lines.append(
        "\nDisagreement with the full model on the samples that the stage decided by, ± standard "
        "error; passes: forward passes of one question through the full decoder so far."
    )
    return "\n".join(lines) + "\n"


def _nearest(tokens: int, budgets: Sequence[int]) -> int:
    return min(budgets, key=lambda budget: abs(budget - tokens))
