"""The command line: parse, call, print. Results on stdout, everything else on stderr.

Exit code 0: done; 1: a failure; 2: a usage error. Nothing heavy is imported before a command runs.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from eos.commands import measure
from eos.errors import EosError
from eos.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="EOS, Efficient Operator Search: make vision-language models cheaper to run.",
)

BENCH_PRESETS = "fastv,sparsevlm-v2,sparsevlm-v1-original,pyramiddrop,tome,pool,visionzip,divprune"
AsJson = measure.AsJson


def _version(wanted: bool) -> None:
    if wanted:
        print(f"eos {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """EOS, Efficient Operator Search: make vision-language models cheaper to run."""


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Check that the operator is prune, merge, pool and reweight at its corners (Listing 3)."""
    from eos.evaluation.verify import verify as run_verification
    from eos.report.verification import show_verification

    verification = run_verification()
    if as_json:
        print(json.dumps(verification.to_dict(), indent=2))
    else:
        show_verification(verification)
    if not verification.passed:
        raise typer.Exit(1)


@app.command()
def plan(
    source: Annotated[
        str,
        typer.Argument(help="fastv@64, eos-miniature@64, a plan.json, or a run's folder."),
    ],
    budget: Annotated[
        int | None, typer.Option(help="Visual tokens; without it, the source's own.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="What the budget counts: final, mean or published.")
    ] = "final",
    layers: Annotated[int, typer.Option(help="Depth of the decoder.")] = 32,
    tokens: Annotated[int, typer.Option(help="Visual tokens an image has.")] = 576,
    text: Annotated[int, typer.Option(help="Text tokens that costs assume.")] = 64,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a plan and print it with what it costs: final and mean tokens, FLOPs, KV cache."""
    from eos.commands.plan import find_plan

    found = find_plan(source, budget=budget, kind=kind, layers=layers, tokens=tokens, text=text)
    if out is not None:
        found.save(out)
        print(f"saved {out}", file=sys.stderr)
    print(found.to_json() if as_json else found, end="" if as_json else "\n")


@app.command()
def search(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [KEY=VALUE]...",
            help="A YAML file, a name of `eos ls configs`, or nothing for the miniature's; then "
            "values that win over it, such as budget=16 objective.align_weight=0.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The run's folder; the same command goes on there.")
    ] = Path("runs/search"),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search where, how much and how to reduce, by gradient; ends with a plan.json.

    Several processes: accelerate launch --multi_gpu -m eos search ...
    """
    from eos.commands.search import search_and_show

    given = arguments or []
    named = [x for x in given[:1] if "=" not in x]
    search_and_show(
        source=named[0] if named else None,
        changes=given[len(named) :],
        out=out,
        as_json=as_json,
        quiet=quiet,
    )


@app.command()
def demo(
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Values of the search, such as steps=40."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of everything; the same command goes on there.")
    ] = Path("runs/demo"),
    limit: Annotated[int, typer.Option(help="Questions of each family.")] = 16,
) -> None:
    """Search on the miniature, and ask the found plan and every prior method the same questions."""
    from eos.commands.demo import demo_and_show

    demo_and_show(changes=changes or [], out=out, limit=limit)


@app.command("ls")
def list_things(
    what: Annotated[
        str, typer.Argument(help="backbones, scorers, presets, tasks or configs; all if left out.")
    ] = "all",
    as_json: AsJson = False,
) -> None:
    """List what there is to name: backbones, scorers, presets, tasks, configs."""
    from eos.commands.ls import catalogue, show_catalogue

    found = catalogue(what)
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        show_catalogue(found)


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(help="A plan.json, theta.json, results.json …")],
    as_json: AsJson = False,
) -> None:
    """Check a file and name everything that is wrong with it."""
    from eos.commands.validate import validate_file

    kind = validate_file(file)
    print(
        json.dumps({"file": str(file), "schema": kind, "valid": True})
        if as_json
        else f"{file}: {kind}, valid"
    )


@app.command()
def bench(
    size: Annotated[str, typer.Option(help="Random LLaVA to build: small, 7b or tiny.")] = "small",
    presets: Annotated[str, typer.Option(help="Presets, with commas between.")] = BENCH_PRESETS,
    budgets: Annotated[
        str, typer.Option(help="Final tokens, with commas between.")
    ] = "192,128,64,16",
    plans: Annotated[
        list[Path] | None, typer.Option("--plan", help="Plan files to measure too, or instead.")
    ] = None,
    text: Annotated[int, typer.Option(help="Text tokens of the prompt.")] = 64,
    repeats: Annotated[int, typer.Option(help="Rounds of which the median counts.")] = 7,
    decode: Annotated[int, typer.Option(help="Tokens decoded in each round.")] = 4,
    batch: Annotated[int, typer.Option(help="Prompts at once.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    attention: Annotated[str, typer.Option(help="sdpa, eager or flash_attention_2.")] = "sdpa",
    out: Annotated[Path | None, typer.Option(help="Write latency.json into this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Time prefill and decoding, full against reduced, beside the bound that plain layers set."""
    from eos.commands.bench import bench_and_show

    bench_and_show(
        size=size,
        presets=[name for name in presets.split(",") if name],
        budgets=budgets,
        files=plans or [],
        text_tokens=text,
        repeats=repeats,
        decode_tokens=decode,
        batch=batch,
        dtype=dtype,
        attention=attention,
        out=out,
        as_json=as_json,
    )


@app.command("eval")
def evaluate(
    out: Annotated[Path, typer.Option(help="Folder of predictions and results; goes on there.")],
    backbone: Annotated[
        str, typer.Option(help="'miniature', a folder, or a model's name on the hub.")
    ] = "miniature",
    plans: Annotated[
        list[str] | None,
        typer.Option("--plan", help="fastv@64, fastv@192,64, plan.json or NAME=FILE; repeatable."),
    ] = None,
    tasks: Annotated[
        str, typer.Option(help="A task, or some of its families: mini:presence,counting.")
    ] = "mini",
    split: Annotated[str, typer.Option(help="Which set of questions.")] = "test",
    limit: Annotated[int, typer.Option(help="Questions of each family.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the questions.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Questions at once.")] = 16,
    blank: Annotated[
        bool, typer.Option("--blank", help="Show grey images: what can be guessed blind?")
    ] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables to this file as Markdown.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the full model and plans the same questions; accuracies and paired differences."""
    from eos.commands.eval import evaluate_and_show

    evaluate_and_show(
        backbone=backbone,
        plans=plans or [],
        task=tasks,
        split=split,
        limit=limit,
        seed=seed,
        out=out,
        batch_size=batch_size,
        blank=blank,
        document=markdown,
        as_json=as_json,
    )


app.command()(measure.profile)
app.command()(measure.fidelity)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        app(args=argv, prog_name="eos")
    except EosError as failure:
        print(f"eos: {failure}", file=sys.stderr)
        return 1
    except SystemExit as leaving:  # how typer says every exit code, 0 included
        return leaving.code if isinstance(leaving.code, int) else 0
    return 0


def run() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(main())
