"""The page of `eos demo`: what the search found, and every method beside it."""

from collections.abc import Sequence

from eos.evaluation.results import Results
from eos.evaluation.rows import ResultRow
from eos.report.evaluation import markdown
from eos.report.search import OPERATOR_COLUMNS, regime_rows
from eos.searching.result import SearchResult

BUDGETS = (64, 16)


def league(results: Results) -> tuple[Results, list[int]]:
    """Order rows by budget, then by accuracy; give the places of each budget's last row."""
    full, *others = results.rows
    by_budget = [
        sorted(
            (row for row in others if _nearest(row.cost.final_tokens) == budget),
            key=lambda row: -row.average.accuracy,
        )
        for budget in BUDGETS
    ]
    ends = [sum(len(rows) for rows in by_budget[:place]) for place in range(len(BUDGETS))]
    rows = (full, *(row for rows in by_budget for row in rows))
    return results.model_copy(update={"rows": rows}), ends


def report(found: SearchResult, results: Results, *, use: str) -> str:
    """Write the page: what was found, how it does, how to use it."""
    head = " | ".join(OPERATOR_COLUMNS)
    regimes = "\n".join(f"| {' | '.join(row)} |" for row in regime_rows(found.plan))
    return (
        "# A search on the miniature\n\n"
        f"Found at {found.plan.expected.final_tokens} final tokens:\n\n"
        f"| {head} |\n|{'---|' * len(OPERATOR_COLUMNS)}\n{regimes}\n\n{stages(found)}\n"
        f"## Beside prior methods\n\n{glance(results)}\n{markdown(results)}\n"
        f"## Use the plan\n\n```python\n{use}```\n"
    )


def glance(results: Results, budgets: Sequence[int] = BUDGETS) -> str:
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


def stages(found: SearchResult) -> str:
    """Write what each stage of the search found, as Markdown."""
    lines = ["| budget | stage | plans tried | disagreement | passes | after layer: tokens left |"]
    lines.append("|---:|---|---:|---:|---:|---|")
    for budget, own in found.stages.items():
        for stage in own:
            steps = ", ".join(f"{step.layer}: {step.keep}" for step in stage.steps)
            mean, error = stage.disagreement.mean, stage.disagreement.stderr
            lines.append(
                f"| {budget} | {stage.name} | {stage.tried} | {mean:.4f} ± {error:.4f} | "
                f"{stage.passes:.0f} | {steps} |"
            )
    lines.append(
        "\nDisagreement with the full model on the samples that the stage decided by, ± standard "
        "error; passes: forward passes of one question through the full decoder so far."
    )
    return "\n".join(lines) + "\n"


def _nearest(tokens: int, budgets: Sequence[int] = BUDGETS) -> int:
    return min(budgets, key=lambda budget: abs(budget - tokens))
