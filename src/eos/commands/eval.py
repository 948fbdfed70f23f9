"""`eos eval`: evaluate, show, save."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eos.commands import options
from eos.commands.benchmarks import benchmarks_watched, named_benchmarks
from eos.commands.terminal import progress_bar, show_result
from eos.errors import ConfigError, StoppedError

if TYPE_CHECKING:
    from eos.evaluation.overall import Overall
    from eos.evaluation.results import Results
    from eos.models import backbone as models


def evaluate(
    out: options.Out,
    backbone: options.Backbone = "miniature",
    plans: options.Plans = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="A task, or some of its families: mini:presence,counting; by default mini. Or "
            "benchmarks: pope,gqa or paper, which is all twelve; each gets a folder in --out."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Which set of a task's questions; by default test.")
    ] = None,
    data: options.OwnData = None,
    images: options.OwnImages = None,
    metric: options.OwnMetric = None,
    prompts: Annotated[
        options.PromptStyle,
        typer.Option(help="Of benchmarks: as LLaVA's or Qwen's evaluation asks."),
    ] = options.PromptStyle.llava,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Questions of each family, or of --data, at most; by default 100, of benchmarks "
            "all."
        ),
    ] = None,
    blank: Annotated[
        bool, typer.Option("--blank", help="Show grey images: accuracy without seeing.")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables to this file as Markdown.")
    ] = None,
    device: options.Device = None,
    dtype: options.DtypeChoice = None,
    attention: options.AttentionChoice = None,
    batch_size: options.BatchSize = 16,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate the full model and plans on the same questions: accuracies, paired differences.

    Several processes: accelerate launch --multi_gpu -m eos eval ...
    """
    from eos.runs.processes import Processes

    names = named_benchmarks(tasks, data, others={"--images": images, "--metric": metric})
    options.check_before_loading(out, files=[markdown], plans=plans)
    own = {} if names else own_questions(data, images, metric)
    processes = Processes()
    processes.refuse_sharding()
    place = device or str(processes.device)
    loaded = options.load_chosen(backbone, device=place, dtype=dtype, attention=attention)
    settings = {"split": split, "limit": limit, "seed": seed, "blank": blank, **own}
    settings |= {"batch_size": batch_size, "quiet": quiet or not processes.main, "out": out}
    try:
        if names:
            settings |= {"tasks": names, "data": data, "prompts": prompts.value}
            found: Results | Overall = benchmarks_watched(loaded, plans or [], **settings)
        else:
            found = evaluate_watched(loaded, plans or [], task=tasks, **settings)
    except StoppedError:
        if processes.main:
            raise
        sys.exit(1)  # the first process says what is kept
    finally:
        processes.leave()
    if processes.main:
        show_results(found, out, document=markdown, as_json=as_json)


def own_questions(
    data: Path | None, images: Path | None, metric: options.MetricChoice | None
) -> dict[str, Any]:
    """Open one's own data before the model is loaded."""
    if (data is None) != (images is None):
        raise ConfigError(
            "expected --data FILE and --images FOLDER together; found only "
            f"{'--images' if data is None else '--data'}"
        )
    chosen: dict[str, Any] = {"metric": metric and metric.value}
    if data is None:
        return chosen
    from eos.data.settings import LlavaData
    from eos.data.sources import open_source

    return {**chosen, "data": open_source(LlavaData(file=str(data), images=str(images)))}


def show_results(
    found: "Results | Overall", out: Path, *, document: Path | None, as_json: bool
) -> None:
    """Print tables or JSON; write Markdown to ``document``."""
    from eos.evaluation.overall import Overall
    from eos.report.evaluation import markdown, show_evaluation
    from eos.report.overall import overall_markdown, show_overall
    from eos.runs.files import write_atomically

    overall = isinstance(found, Overall)
    print(f"saved {out / ('overall.json' if overall else 'results.json')}", file=sys.stderr)
    if document is not None:
        text = overall_markdown(found) if isinstance(found, Overall) else markdown(found)
        write_atomically(document, text)
        print(f"saved {document}", file=sys.stderr)
    show_result(found, show_overall if overall else show_evaluation, as_json=as_json)


def evaluate_watched(
    backbone: "models.Backbone", plans: list[str], *, out: Path, quiet: bool, **settings: Any
) -> "Results":
    """Evaluate with a progress bar; Ctrl-C stops with a note on what is kept and how to resume."""
    from eos.evaluation.evaluate import evaluate

    done = [0, 0]
    try:
        with progress_bar("answers", quiet=quiet) as update:

            def watch(count: int, total: int) -> None:
                done[:] = count, total
                update(count, total)

            return evaluate(backbone, plans, out=out, watch=watch, **settings)
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; {done[0]} of {done[1]} answers are kept in {out}. Rerun the same command to "
            "resume"
        ) from None
