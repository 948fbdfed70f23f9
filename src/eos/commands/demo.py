"""Run `eos demo`: a short search on the miniature, then its plan beside every prior method.

The search and the evaluation keep what they have in their folders, so that an interrupted demo goes
on; the report is what a reader needs to believe the table, and to use the plan.
"""

import sys
from pathlib import Path

from rich.console import Console

from eos.commands.eval import WIDTH, evaluate_watched
from eos.commands.search import search_watched
from eos.methods.registry import PRESETS
from eos.report.demo import BUDGETS, league, report
from eos.report.evaluation import caption, summary_table
from eos.report.search import show_search
from eos.runs.files import write_atomically
from eos.searching.files import read_config
from eos.searching.processes import Processes
from eos.searching.search import Answer

SEARCHED = "searched"
SEED = 1  # of the questions; the search never sees the test split
# half of the default's samples, so that search and evaluation end within ten minutes on two cores
SHORT = ("validation.samples=180", "explore.confirm_samples=90", "steps=12")
USE = """\
import eos
from eos.miniature.world import example
from transformers import AutoProcessor

backbone = eos.load_backbone("miniature")
processor = AutoProcessor.from_pretrained(backbone.model.name_or_path)
sample = example("test", "counting", 0)  # a picture of the miniature's world, and a question
chat = {{"add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}}
inputs = processor.apply_chat_template(sample.messages(), tokenize=True, **chat)
inputs = inputs.to(backbone.model.device, backbone.model.dtype)
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
    config = read_config(changes=[f"budgets={list(BUDGETS)}", *SHORT, *changes])
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
    """Name every preset at every budget, or at the next one that its operator can make."""
    return [
        f"{name}@{preset.nearest_budget(budget)}"
        for budget in BUDGETS
        for name, preset in PRESETS.items()
    ]
