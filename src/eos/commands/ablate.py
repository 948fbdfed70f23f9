"""`eos ablate`: one ablation of the paper, with the searches that it needs."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from eos.commands import options
from eos.commands.programme import run_programme, scope_of
from eos.commands.reproduce import show_study


class AblationName(str, Enum):
    """What is varied."""

    alignment = "alignment"
    layers = "layers"
    operator = "operator"
    budgets = "budgets"
    placement = "placement"
    selection = "selection"
    method = "method"
    seeds = "seeds"


def ablate(
    name: Annotated[AblationName, typer.Argument(help="What is varied.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [KEY=VALUE]...", help="Of the search, as `eos search` takes them."
        ),
    ] = None,
    out: options.Out = Path("runs/reproduce"),
    jobs: options.Jobs = None,
    limit: options.Limit = None,
    budgets: options.BudgetList = None,
    search: options.GivenSearches = None,
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
    """Vary one respect of the search, its plans or their operators; the rest stays as found."""
    from eos.evaluation.study import Study
    from eos.programme.catalogue import ABLATIONS

    given = {"limit": limit, "searches": search, "task": task, "paper": paper, "descent": descent}
    given |= {"device": device, "dtype": dtype, "attention": attention}
    given |= {"batch_size": batch_size, "seed": seed}
    scope = scope_of(arguments, given, budgets=budgets)
    studies = ABLATIONS[name.value]
    if run_programme(scope, out, jobs=jobs, studies=studies, dry_run=dry_run, quiet=quiet):
        for study in studies:
            made = Study.load(out / "studies" / f"{study}.json")
            if as_json:
                print(made.to_json(), end="")
            else:
                show_study(made)
