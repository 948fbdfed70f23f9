"""`eos demo`: a short search on the miniature, then its plan beside every prior method.

The search and the evaluation keep what they have in their folders: rerun to resume. The report has
what a reader needs to check the table, and to use the plan.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eos.commands.eval import WIDTH, evaluate_watched
from eos.commands.options import (
    AsJson,
    AttentionChoice,
    ConfigSeed,
    DeviceMap,
    DtypeChoice,
    MicroBatch,
    Out,
    Quiet,
    changes_of,
)
from eos.commands.search import load_placed, search_watched

if TYPE_CHECKING:
    from eos.evaluation.results import Results
    from eos.searching.result import SearchResult
    from eos.searching.settings import SearchConfig

SEARCHED = "searched"
SEED = 1  # of the questions; the search does not use the test split
# half of the default's samples, so that search and evaluation end within ten minutes on two cores
SHORT = ("validation.samples=180", "explore.confirm_samples=90", "steps=12")
USE = """\
import eos
from eos.miniature.world import example
from transformers import AutoProcessor

backbone = eos.load_backbone("miniature")
processor = AutoProcessor.from_pretrained(backbone.model.name_or_path)
sample = example("test", "counting", 0)  # a picture and a question
inputs = processor.apply_chat_template(
    sample.messages(),
    add_generation_prompt=True,
    tokenize=True,
    return_dict=True,
    return_tensors="pt",
)
inputs = inputs.to(backbone.model.device, backbone.model.dtype)
with eos.reduced(backbone, eos.Plan.load("{plan}")) as model:
    answer = model.generate(**inputs, max_new_tokens=4)
print(processor.batch_decode(answer, skip_special_tokens=True)[0])
"""


def demo(
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Values of the search, such as steps=40."),
    ] = None,
    out: Out = Path("runs/demo"),
    limit: Annotated[int, typer.Option(help="Questions of each family.")] = 16,
    device: DeviceMap = None,
    dtype: DtypeChoice = None,
    attention: AttentionChoice = None,
    batch_size: MicroBatch = None,
    seed: ConfigSeed = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search on the miniature, then evaluate the found plans and every prior method alike."""
    from eos.report.search import show_search
    from eos.runs.processes import Processes

    config = short_search(
        [*(changes or []), *changes_of(device=device, batch_size=batch_size, seed=seed)]
    )
    processes = Processes()
    print("1/2 searching: where, how much and how to reduce", file=sys.stderr)
    found = search_watched(
        config, out / "search", processes, dtype=dtype, attention=attention, quiet=quiet
    )
    if not as_json:
        show_search(found, out / "search", width=None if sys.stdout.isatty() else WIDTH)
    plans = save_plans(found, out)
    specs = [*(f"{name}={path}" for name, path in plans.items()), *rivals()]
    print("2/2 evaluating the full model, the found plans and every prior method", file=sys.stderr)
    backbone = load_placed(config, processes, dtype=dtype, attention=attention)
    folder = out / "eval"
    results = evaluate_watched(backbone, specs, out=folder, quiet=quiet, limit=limit, seed=SEED)
    show_demo(found, results, plans, out=out, as_json=as_json)


def short_search(changes: list[str]) -> "SearchConfig":
    """Configure the demo's search."""
    from eos.report.demo import BUDGETS
    from eos.searching.files import read_config

    return read_config(changes=[f"budgets={list(BUDGETS)}", *SHORT, *changes])


def show_demo(
    found: "SearchResult", results: "Results", plans: dict[str, Path], *, out: Path, as_json: bool
) -> None:
    """Print one table of all methods and how to use the plan, or JSON; write ``report.md``."""
    from rich.console import Console

    from eos.report.demo import league, report
    from eos.report.evaluation import caption, summary_grid
    from eos.report.layout import show_grid
    from eos.runs.files import write_atomically

    ordered, lines = league(results)
    use = USE.format(plan=next(iter(plans.values())).as_posix())
    write_atomically(out / "report.md", report(found, ordered, use=use))
    if as_json:
        print(results.to_json(), end="")
        return
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    show_grid(console, summary_grid(ordered, lines_after=lines))
    for paragraph in caption(results):
        console.print(paragraph, highlight=False, markup=False)
    files = ", ".join(str(path) for path in [*plans.values(), out / "report.md"])
    print(f"\nsaved {files}; to use the plan:\n\n{use}")  # code and paths are not wrapped


def save_plans(found: "SearchResult", out: Path) -> dict[str, Path]:
    """Write the found plan of every budget."""
    from eos.report.demo import BUDGETS

    paths = {f"{SEARCHED}@{budget}": out / f"plan-{budget}.json" for budget in BUDGETS}
    for budget, path in zip(BUDGETS, paths.values(), strict=True):
        found.plans[budget].save(path)
    return paths


def rivals() -> list[str]:
    """Name every preset at every budget, or at the next one that its operator can make."""
    from eos.methods.registry import PRESETS
    from eos.report.demo import BUDGETS

    return [
        f"{name}@{preset.nearest_budget(budget)}"
        for budget in BUDGETS
        for name, preset in PRESETS.items()
    ]
