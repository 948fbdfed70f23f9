"""Run `eos demo`: a short search on the miniature, then its plan beside every prior method.

The search and the evaluation keep what they have in their folders, so that an interrupted demo goes
on; the report is what a reader needs to believe the table, and to use the plan.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from eos.evaluation.results import Results, Row
from eos.methods import presets
from eos.reporting.eval import WIDTH, evaluate_watched
from eos.reporting.evaluation import caption, markdown, summary_table
from eos.reporting.search import COLUMNS, regime_rows, search_watched, show_search
from eos.runs.files import write_atomically
from eos.searching.files import read_config
from eos.searching.processes import Processes
from eos.searching.search import Answer

BUDGETS = (64, 16)
SEARCHED = "searched"
SEED = 1  # of the questions; the search never sees the test split
USE = """\
import eos
from eos.miniature.world import example
from transformers import AutoProcessor

backbone = eos.load_backbone("miniature")
processor = AutoProcessor.from_pretrained(backbone.model.name_or_path)
asked = example("test", "counting", 0)  # a picture of the miniature's world, and a question
chat = {{"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}}
inputs = processor.apply_chat_template(asked.messages(), tokenize=True, **chat)
with eos.reduced(backbone, eos.Plan.load("{plan}")) as model:
    answer = model.generate(**inputs, max_new_tokens=4)
print(processor.batch_decode(answer, skip_special_tokens=True)[0])
"""


def demo_and_show(*, changes: list[str], out: Path, limit: int) -> None:
    """Search, evaluate, print one table, write ``report.md``."""
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(width=width)
    say = Console(stderr=True)
    say.print("1/2 searching: where, how much and how to reduce", highlight=False)
    config = read_config(changes=[f"budgets={list(BUDGETS)}", *changes])
    found = search_watched(config, out / "search", Processes())
    show_search(found, out / "search", width=width)
    plans = save_plans(found, out)
    say.print("2/2 asking the full model, the found plan and every prior method", highlight=False)
    results = evaluate_watched(
        config.backbone,
        [*(f"{name}={path}" for name, path in plans.items()), *rivals()],
        out=out / "eval",
        limit=limit,
        seed=SEED,
    )
    ordered, lines = league(results)
    console.print(summary_table(ordered, lines_after=lines))
    for paragraph in caption(results):
        console.print(paragraph, highlight=False, markup=False)
    use = USE.format(plan=plans[f"{SEARCHED}@{BUDGETS[0]}"].as_posix())
    write_atomically(out / "report.md", report(found, ordered, use=use))
    files = ", ".join(str(path) for path in [*plans.values(), out / "report.md"])
    console.print(f"\nsaved {files}; to use the plan:\n\n{use}", highlight=False, markup=False)


def save_plans(found: Answer, out: Path) -> dict[str, Path]:
    """Write the found plan of every budget."""
    paths = {f"{SEARCHED}@{budget}": out / f"plan-{budget}.json" for budget in BUDGETS}
    for budget, path in zip(BUDGETS, paths.values(), strict=True):
        found.plans[budget].save(path)
    return paths


def rivals() -> list[str]:
    """Name every preset at every budget, one token more for the one that makes odd numbers."""
    return [_spec(name, budget) for budget in BUDGETS for name in presets()]


def league(results: Results) -> tuple[Results, list[int]]:
    """Order rows by budget, then by accuracy; say after which of them a budget ends."""
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


def report(found: Answer, results: Results, *, use: str) -> str:
    """Write the page: what was found, how it does, how to use it."""
    head = " | ".join(COLUMNS)
    regimes = "\n".join(f"| {' | '.join(row)} |" for row in regime_rows(found.plan))
    return (
        "# A search on the miniature\n\n"
        f"Found at {found.plan.expected.final_tokens} final tokens:\n\n"
        f"| {head} |\n|{'---|' * len(COLUMNS)}\n{regimes}\n\n{stages(found)}\n"
        f"## Beside prior methods\n\n{glance(results)}\n{markdown(results)}\n"
        f"## Use the plan\n\n```python\n{use}```\n"
    )


def glance(results: Results, budgets: Sequence[int] = BUDGETS) -> str:
    """Write one row a method with its FLOPs and accuracy at every budget; none is left out."""
    full, *others = results.rows
    found: dict[str, dict[int, Row]] = {}
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


def _accuracy(row: Row) -> str:
    return f"{row.average.accuracy:.1f} ± {row.average.stderr:.1f}"


def stages(found: Answer) -> str:
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


def _spec(name: str, budget: int) -> str:
    odd = presets()[name].operator["kind"] == "prumerge+"  # makes 2k + 1 tokens
    return f"{name}@{budget + 1 if odd else budget}"


def _nearest(tokens: int, budgets: Sequence[int] = BUDGETS) -> int:
    return min(budgets, key=lambda budget: abs(budget - tokens))
