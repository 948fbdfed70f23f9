"""Run `eos bench`: build, measure, show, save."""

import sys
from itertools import product
from pathlib import Path
from typing import cast

import torch
from rich.console import Console
from rich.progress import Progress

from eos.errors import ConfigError
from eos.evaluation.latency import measure, runs
from eos.models.random_llava import Size, random_llava, visual_tokens
from eos.report.latency import show_latency
from eos.space.plan import Plan

WIDTH = 130  # of a table that goes to a file
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def bench_and_show(
    *,
    size: str,
    presets: list[str],
    budgets: str,
    files: list[Path],
    text_tokens: int,
    repeats: int,
    decode_tokens: int,
    batch: int,
    dtype: str,
    attention: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run `eos bench`: build a random model, measure presets and files on it, show and save."""
    if dtype not in DTYPES:
        raise ConfigError(f"expected --dtype {', '.join(DTYPES)}; found {dtype!r}")
    counts = _numbers(budgets)
    backbone = random_llava(cast(Size, size), dtype=DTYPES[dtype], attn_implementation=attention)
    plans = {path.stem: Plan.load(path) for path in files}
    for name, budget in product(presets, counts):
        plans[f"{name} {budget}"] = Plan.preset(
            name,
            budget=budget,
            visual_tokens=visual_tokens(backbone),
            num_layers=backbone.num_layers,
            dims=backbone.dims,
            text_tokens=text_tokens,
        )
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=runs(plans, repeats))
        report = measure(
            backbone,
            plans,
            text_tokens=text_tokens,
            repeats=repeats,
            decode_tokens=decode_tokens,
            batch=batch,
            model=f"random LLaVA ({size})",
            tick=lambda: progress.advance(task),
        )
    if out is not None:
        report.save(out / "latency.json")
        print(f"saved {out / 'latency.json'}", file=sys.stderr)
    if as_json:
        print(report.to_json(), end="")
    else:
        show_latency(report, width=None if sys.stdout.isatty() else WIDTH)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise ConfigError(f"expected numbers with commas between, found {text!r}") from None
