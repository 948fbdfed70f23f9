"""`eos paper`: the searches that the paper's tables need, then the tables; rerun to resume."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eos.commands import options
from eos.commands.search import search_watched
from eos.commands.terminal import progress_bar, resumable, table_width
from eos.errors import ConfigError, EosError

if TYPE_CHECKING:
    from eos.evaluation.overall import Overall
    from eos.evaluation.paper_tables import PaperTable
    from eos.models.backbone import Backbone
    from eos.searching.result import SearchResult
    from eos.searching.settings import SearchConfig

HUB = "hub"  # instead of a folder of benchmarks


def paper(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]... [KEY=VALUE]...",
            help="Names of `eos ls tables` or YAML files, all tables by default; then values of "
            "the searches, such as steps=400.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of searches, answers and tables; rerun to resume.")
    ] = Path("runs/paper"),
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with one for each benchmark; or hub, for the datasets of the hub or its "
            "cache."
        ),
    ] = None,
    mix: Annotated[
        Path | None, typer.Option(help="Conversations to search on; short for data.file=.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of their images; short for data.images=.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Instead of the tables' own: a folder or a name.")
    ] = None,
    prompts: Annotated[
        options.PromptStyle, typer.Option(help="As LLaVA's or Qwen's evaluation asks.")
    ] = options.PromptStyle.llava,
    limit: Annotated[
        int | None, typer.Option(help="Questions of each part of a benchmark; all by default.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Questions at once; the tables' own by default.")
    ] = None,
    device: options.Device = None,
    dtype: options.DtypeChoice = None,
    attention: options.AttentionChoice = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Search, then evaluate the plans and prior methods on benchmarks: the paper's tables.

    Several GPUs: accelerate launch --multi_gpu -m eos paper ...
    """
    from eos.runs.processes import Processes

    changes = {"backbone": backbone, "data.file": mix, "data.images": images, "device_map": device}
    given = [f"{key}={value}" for key, value in changes.items() if value is not None]
    tables, own = read_arguments(arguments or [])
    searches = search_configs(tables, [*given, *own])
    check_ready(tables, searches, data=data, device=device)
    options.check_before_loading(out)
    processes = Processes()
    quiet = quiet or not processes.main
    try:
        found = {
            name: search_watched(
                config,
                out / "searches" / name,
                processes,
                dtype=dtype or precision("bfloat16", config.device_map),
                attention=attention,
                quiet=quiet,
            )
            for name, config in searches.items()
        }
        first = next(iter(tables.values()))
        loaded = options.load_chosen(
            backbone or first.backbone,
            device=device or str(processes.device),
            dtype=dtype or precision(first.dtype, device),
            attention=attention,
        )
        asked: dict[str, Any] = {"limit": limit, "batch_size": batch_size}
        asked |= {"data": None if data == Path(HUB) else data, "prompts": prompts.value}
        made = {}
        for name, table in tables.items():
            made[name] = make_table(name, table, loaded, found, out=out, quiet=quiet, asked=asked)
            if processes.main:
                save_table(made[name], out / name, title=f"{table.title} ({table.label})")
    finally:
        processes.leave()
    if processes.main:
        show_tables(made, as_json=as_json)


def read_arguments(arguments: list[str]) -> "tuple[dict[str, PaperTable], list[str]]":
    """Tell tables, all if none is named, from values of the searches."""
    from eos.evaluation.paper_tables import paper_tables, read_table

    changes = [given for given in arguments if "=" in given]
    named = [given for given in arguments if "=" not in given] or list(paper_tables())
    tables = {Path(name).stem: read_table(name) for name in named}
    kinds = {f"{table.backbone} in {table.dtype}" for table in tables.values()}
    if len(kinds) > 1:
        raise ConfigError(
            f"expected tables of one model, for they share answers; found "
            f"{', '.join(sorted(kinds))}. Run them apart, with another --out"
        )
    return tables, changes


def search_configs(
    tables: "dict[str, PaperTable]", changes: list[str]
) -> "dict[str, SearchConfig]":
    """Configure the searches that tables need, by name; ``changes`` win."""
    from eos.evaluation.paper_tables import all_searches
    from eos.searching.files import read_config

    needed = all_searches(tables.values())
    return {name: read_config(own[0], [*own[1:], *changes]) for name, own in needed.items()}


def check_ready(
    tables: "dict[str, PaperTable]",
    searches: "dict[str, SearchConfig]",
    *,
    data: Path | None,
    device: str | None,
) -> None:
    """Name everything that is missing, before a model is loaded."""
    import torch

    from eos.evaluation.suite import check_folders

    problems = []
    if device is None and not torch.accelerator.is_available():
        problems.append(
            "expected a GPU that torch sees; found none. --device cpu is for small models"
        )
    for config in searches.values():
        if config.data.kind == "llava":
            problems += [
                f"expected {what} at {path}, found none; {how}"
                for what, path, how in (
                    (
                        "conversations to search on",
                        config.data.file,
                        "eos data balanced-mix, --mix",
                    ),
                    ("their images", config.data.images, "--images names their folder"),
                )
                if not Path(path).exists()
            ]
    if data is None:
        problems.append("expected benchmarks; found no --data FOLDER, or --data hub")
    elif data != Path(HUB):
        try:
            check_folders([*dict.fromkeys(x for t in tables.values() for x in t.tasks)], data)
        except EosError as failure:
            problems += failure.problems or [str(failure)]
    if problems:
        raise ConfigError(problems=list(dict.fromkeys(problems)))


def precision(chosen: str, device: str | None) -> options.Dtype | None:
    """Take a table's precision on an accelerator; a CPU's default on a CPU."""
    import torch

    on_cpu = device == "cpu" or not torch.accelerator.is_available()
    return None if on_cpu else options.Dtype(chosen)


def make_table(
    name: str,
    table: "PaperTable",
    backbone: "Backbone",
    found: "dict[str, SearchResult]",
    *,
    out: Path,
    quiet: bool,
    asked: dict[str, Any],
) -> "Overall":
    """Let the full model and a table's plans answer what they have not yet answered."""
    from eos.evaluation.paper_tables import choose_rows, plans_of
    from eos.evaluation.suite import evaluate_benchmarks
    from eos.models.plain import model_sizes

    plans = plans_of(table, found, model_sizes(backbone))
    asked = {**asked, "tasks": list(table.tasks), "out": out / "answers"}
    asked["batch_size"] = asked["batch_size"] or table.batch_size
    kept = f"all answers so far are kept in {out}"
    with resumable(kept), progress_bar("answers", quiet=quiet) as update:

        def watch(task: str, done: int, total: int) -> None:
            update(done, total, label=f"{name}: {task}")

        return choose_rows(evaluate_benchmarks(backbone, plans, watch=watch, **asked), table)


def save_table(made: "Overall", path: Path, *, title: str) -> None:
    """Write a table as JSON and Markdown."""
    from eos.report.overall import overall_markdown
    from eos.runs.files import write_atomically

    made.save(f"{path}.json")
    write_atomically(f"{path}.md", f"# {title}\n\n{overall_markdown(made)}")
    print(f"saved {path}.json and .md", file=sys.stderr)


def show_tables(made: "dict[str, Overall]", *, as_json: bool) -> None:
    """Print tables, or all of them as one JSON object by name."""
    from eos.report.overall import show_overall

    if as_json:
        print(json.dumps({name: json.loads(own.to_json()) for name, own in made.items()}, indent=2))
        return
    for name, own in made.items():
        print(name)
        show_overall(own, width=table_width())
