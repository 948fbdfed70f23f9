"""`eos bench`: build a random model, measure, show, save."""

import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eos.commands import options
from eos.commands.terminal import progress_bar, show_result

if TYPE_CHECKING:
    from eos.evaluation.latency import LatencyReport
    from eos.models import backbone as models

WIDTH = 130  # of a table that goes to a file
PRESETS = "fastv sparsevlm-v2 sparsevlm-v1-original pyramiddrop tome pool visionzip divprune"
BUDGETS = (192, 128, 64, 16)


def bench(
    size: Annotated[options.Size, typer.Option(help="Random LLaVA to build.")] = options.Size.small,
    plans: options.Plans = None,
    text: Annotated[int, typer.Option(help="Text tokens of the prompt.")] = 64,
    repeats: Annotated[int, typer.Option(help="Rounds; their median is reported.")] = 7,
    decode: Annotated[int, typer.Option(help="Tokens decoded in each round.")] = 4,
    out: Annotated[Path | None, typer.Option(help="Write latency.json into this folder.")] = None,
    device: options.Device = None,
    dtype: options.DtypeChoice = None,
    attention: options.AttentionChoice = None,
    batch_size: options.BatchSize = 1,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Time prefill and decoding, full against reduced, beside the bound that plain layers set.

    Without --plan, eight presets at 192, 128, 64 and 16 tokens; without --dtype, float32.
    """
    from eos.models.devices import default_device
    from eos.models.random_llava import random_llava, visual_tokens
    from eos.report.latency import show_latency

    options.check_before_loading(out, plans=plans)
    backbone = random_llava(
        size.value,
        dtype=dtype.value if dtype else "float32",
        attn_implementation=attention.value if attention else "sdpa",
        device=device or default_device(),
        seed=seed,
    )
    lengths = {"text_tokens": text, "decode_tokens": decode, "batch": batch_size}
    report = bench_watched(
        backbone,
        plans or default_plans(visual_tokens(backbone)),
        lengths,
        repeats=repeats,
        model=f"random LLaVA ({size.value})",
        quiet=quiet,
    )
    if out is not None:
        report.save(out / "latency.json")
        print(f"saved {out / 'latency.json'}", file=sys.stderr)
    show_result(report, show_latency, as_json=as_json, width=WIDTH)


def default_plans(visual_tokens: int) -> list[str]:
    """Name the presets at every budget that a prompt of so many visual tokens can be cut to."""
    budgets = [budget for budget in BUDGETS if budget < visual_tokens] or [visual_tokens // 2]
    return [f"{name}@{','.join(map(str, budgets))}" for name in PRESETS.split()]


def bench_watched(
    backbone: "models.Backbone",
    specs: list[str],
    lengths: dict[str, int],
    *,
    repeats: int,
    model: str,
    quiet: bool,
) -> "LatencyReport":
    """Measure with a progress bar; ``lengths`` are text_tokens, decode_tokens and batch."""
    from eos.evaluation.latency import measure, runs
    from eos.evaluation.specs import named_plans
    from eos.models.random_llava import visual_tokens

    sizes = {"visual_tokens": visual_tokens(backbone), "text_tokens": lengths["text_tokens"]}
    plans = named_plans(specs, backbone, **sizes)
    total, done = runs(plans, repeats), count(1)
    with progress_bar("measurements", quiet=quiet) as update:

        def tick() -> None:
            update(next(done), total)

        return measure(backbone, plans, repeats=repeats, model=model, tick=tick, **lengths)
