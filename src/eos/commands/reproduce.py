"""`eos reproduce`: the whole programme of the paper on one backbone, in pieces that resume."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eos.commands import options
from eos.commands.programme import run_programme, scope_of
from eos.commands.terminal import table_width

if TYPE_CHECKING:
    from eos.evaluation.study import Study

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


def reproduce(
    arguments: options.Arguments = None,
    out: options.Out = Path("runs/reproduce"),
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A short search, two budgets and few questions: at most ten minutes."
        ),
    ] = False,
    jobs: options.Jobs = None,
    limit: options.Limit = None,
    budgets: options.BudgetList = None,
    search: options.GivenSearches = None,
    preset: options.ChosenPresets = None,
    task: options.TaskChoice = "mini",
    paper: options.PaperConfig = None,
    descent: options.DescentChanges = None,
    device: options.Device = None,
    dtype: options.DtypeChoice = None,
    attention: options.AttentionChoice = None,
    batch_size: options.BatchSize = 16,
    seed: options.QuestionSeed = None,
    dry_run: options.ListPieces = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Run the paper's programme: searches, every prior method, ablations; then report.

    Several machines with a shared folder: accelerate launch -m eos reproduce ...
    """
    given = {"limit": limit, "searches": search, "presets": preset, "task": task, "paper": paper}
    given |= {"descent": descent, "device": device, "dtype": dtype, "attention": attention}
    given |= {"batch_size": batch_size, "seed": seed}
    scope = scope_of(arguments, given, quick=quick, budgets=budgets)
    if run_programme(scope, out, jobs=jobs, dry_run=dry_run, quiet=quiet):
        show_programme(out, as_json=as_json)


def show_programme(out: Path, *, as_json: bool) -> None:
    """Print the main table, or it as JSON; write the report and say where it is."""
    from eos.evaluation.study import Study
    from eos.report.build import build
    from eos.report.programme import report
    from eos.runs.files import write_atomically

    study = Study.load(out / "studies" / "main.json")
    plans = sorted((out / "plans").glob("eos-1@*.json"), key=lambda path: -_budget(path))
    use = USE.format(plan=plans[0].as_posix())
    write_atomically(out / "report.md", report(study, out, use=use))
    page = build([out], out / "report").other
    if as_json:
        print(study.to_json(), end="")
        return
    show_study(study)
    shown = ", ".join(str(path) for path in [*plans, out / "report.md", *page])
    print(f"\nsaved {shown}; to use the plan:\n\n{use}")  # code and paths are not wrapped


def show_study(study: "Study") -> None:
    """Print a study's rows, budget by budget, the best first."""
    from rich.console import Console

    from eos.report.evaluation import caption, summary_grid
    from eos.report.layout import show_grid
    from eos.report.programme import league

    ordered, lines = league(study)
    console = Console(width=table_width())
    show_grid(console, summary_grid(ordered, lines_after=lines))
    for paragraph in caption(ordered):
        console.print(paragraph, highlight=False, markup=False)


def _budget(path: Path) -> int:
    return int(path.stem.partition("@")[2])
