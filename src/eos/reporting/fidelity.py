"""Run `eos fidelity`: measure, show, save as JSON and Markdown."""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eos.data.batches import Reader
from eos.data.settings import WorldData
from eos.data.sources import open_source
from eos.errors import ConfigError
from eos.evaluation.agreement import Agreement
from eos.evaluation.fidelity import METHODS, Fidelity, Level, measure_fidelity
from eos.evaluation.slopes import STEP, Measured, Slopes
from eos.models.backbone import load_backbone
from eos.models.processor import fingerprint, load_processor, locate, model_name
from eos.runs.files import append_lines, whole_lines, write_atomically


def fidelity_and_show(
    *,
    backbone: str,
    samples: int,
    batch: int,
    fractions: str,
    seed: int,
    out: Path,
    as_json: bool,
) -> None:
    """Measure on the world's validation questions with a progress bar; print and write.

    What is measured is noted at once: the same command goes on where it was ended.
    """
    wanted = _fractions(fractions)
    loaded = load_backbone(locate(backbone))
    source = open_source(WorldData(split="validation", seed=seed))
    reader = Reader(source, load_processor(backbone), "last")
    asked = reader.first(samples, at_once=batch)
    about = {"weights": fingerprint(loaded.model), "methods": list(METHODS), "batch": batch}
    about |= {"fractions": wanted, "seed": seed}
    notes = out / "slopes.jsonl"
    known = read_slopes(notes, about)[: samples // batch]
    columns = (TextColumn("questions"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=samples, completed=sum(x.samples for x in known))

        def watch(slopes: Slopes) -> None:
            if slopes.samples == batch:  # a shorter one is the last, and with more samples another
                append_lines(notes, slopes.model_dump_json() + "\n")
            progress.advance(bar, slopes.samples)

        found = measure_fidelity(
            loaded,
            reader=reader,
            batch=asked,
            name=model_name(backbone),
            fractions=wanted,
            known=known,
            watch=watch,
        )
    found.save(out / "fidelity.json")
    write_atomically(out / "fidelity.md", markdown(found))
    print(f"saved {out / 'fidelity.json'} and {out / 'fidelity.md'}", file=sys.stderr)
    print(found.to_json() if as_json else markdown(found), end="")


def read_slopes(path: Path, about: dict[str, Any]) -> list[Slopes]:
    """Read what was measured before in the same way; begin the file if there is none."""
    first = json.dumps(about)
    lines = whole_lines(path)
    if not lines:
        write_atomically(path, first + "\n")
        return []
    if lines[0].decode("utf-8") != first:
        raise ConfigError(
            f"expected {path} to hold what was measured with {first}; found "
            f"{lines[0].decode('utf-8')[:200]}. Use another folder"
        )
    return [Slopes.model_validate_json(line) for line in lines[1:]]


def markdown(found: Fidelity) -> str:
    """Write a table of agreements, then one of layers for each keep fraction."""
    lines = [
        f"{found.backbone}: {found.visual_tokens} visual tokens, one reducer (`{found.score}`, "
        f"prune) at a time at layers {found.layers[0]} to {found.layers[-1]}, {found.samples} "
        f"questions. The derivative of the loss in g·c, against central differences of "
        f"±{STEP:.0%} of the kept tokens under the deployed forward pass.",
        "",
        "| selection, through | keep | rank correlation | signs agree | signs, certain layers |",
        "|---|---:|---:|---:|---:|",
    ]
    for method in found.levels[0].methods:
        for level in found.levels:
            own = level.methods[method]
            sure = "–" if own.certain_signs is None else f"{own.certain_signs:.0%}"
            lines.append(
                f"| {method} | {level.keep_frac:g} ({level.keep} ± {level.step}) | {own.rank:.2f} "
                f"± {own.rank_stderr:.2f} | {own.signs:.0%} | {sure} of {level.certain} |"
            )
    lines += [
        "",
        "± of a correlation: its standard error, by drawing the questions anew (bootstrap); noise "
        "also lowers it. A layer is certain if its difference exceeds two standard errors.",
        *_sizes(found),
    ]
    for level in found.levels:
        lines += ["", *_layers(found, level)]
    return "\n".join(lines) + "\n"


def _sizes(found: Fidelity) -> list[str]:
    """Write a table of what is pooled over layers and keep fractions."""
    if not found.pooled:
        return []
    fractions = [f"{level.keep_frac:g}" for level in found.levels]
    lines = [
        "",
        "Sizes, all layers and keep fractions together:",
        "",
        "| selection, through | passes | rank correlation | surrogate / difference | "
        f"wrong sign | {' | '.join(f'sums, {fraction}' for fraction in fractions)} |",
        f"|---|---:|---:|---:|---:|{'---:|' * len(fractions)}",
    ]
    for method, own in found.pooled.items():
        ratio = "–"
        if own.ratio is not None:
            ratio = f"{own.ratio:.2f} ({own.ratio_low:.2f} to {own.ratio_high:.2f})"
        wrong = "–" if own.wrong is None else f"{own.wrong:.0%}"
        cells = " | ".join(_total(level.methods[method]) for level in found.levels)
        lines.append(
            f"| {method} | {own.passes} | {own.rank:.2f} ± {own.rank_stderr:.2f} | {ratio} | "
            f"{wrong} of {own.certain} | {cells} |"
        )
    return [
        *lines,
        "",
        "A cell is a layer at a keep fraction. Surrogate over difference: the median over certain "
        "cells of the right sign, and the 16th to 84th percentile. Sums: over layers, surrogates "
        "over differences. Passes: forward passes at one site, a backward pass being two; a "
        "backward pass serves all sites of one Θ at once, a measured difference one site. "
        f"*measured* takes steps of ±{Measured().step:.0%} on the same questions.",
    ]


def _total(own: Agreement) -> str:
    return "–" if own.total is None else f"{own.total:.2f} ± {own.total_stderr:.2f}"


def _layers(found: Fidelity, level: Level) -> list[str]:
    names = list(level.methods)
    lines = [
        f"Keep {level.keep} ({level.keep_frac:g}), derivatives ± standard error:",
        "",
        f"| layer | difference | {' | '.join(names)} |",
        f"|---:|{'---:|' * (len(names) + 1)}",
    ]
    for place, layer in enumerate(found.layers):
        values = [level.difference[place], *(level.methods[n].gradient[place] for n in names)]
        cells = " | ".join(f"{x.mean:.3f} ± {x.stderr:.3f}" for x in values)
        lines.append(f"| {layer} | {cells} |")
    return lines


def _fractions(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < fraction < 1 for fraction in found):
        raise ConfigError(f"expected keep fractions between 0 and 1, found {text!r}")
    return found
