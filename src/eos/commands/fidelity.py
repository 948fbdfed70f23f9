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
from eos.evaluation.fidelity import SLOPE_METHODS, measure_fidelity
from eos.evaluation.slopes import Slopes
from eos.models.backbone import load_backbone
from eos.models.processor import fingerprint, load_processor, locate, model_name
from eos.report.fidelity import markdown
from eos.runs.files import write_atomically
from eos.runs.identity import check_same
from eos.runs.journal import Journal


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
    about = {"weights": fingerprint(loaded.model), "methods": list(SLOPE_METHODS), "batch": batch}
    about |= {"fractions": wanted, "seed": seed}
    journal = Journal(out / "slopes.jsonl")
    known = read_slopes(journal, about)[: samples // batch]
    columns = (TextColumn("questions"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=samples, completed=sum(x.samples for x in known))

        def watch(slopes: Slopes) -> None:
            if slopes.samples == batch:  # a shorter one is the last, and with more samples another
                journal.add(slopes.model_dump_json())
                journal.flush()
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


def read_slopes(journal: Journal, about: dict[str, Any]) -> list[Slopes]:
    """Read what was measured before in the same way; begin the file if there is none."""
    journal.cut()
    entries = list(journal.entries())
    if not entries:
        journal.add(json.dumps(about))
        journal.flush()
        return []
    check_same(journal.path, entries[0], about, what="measurement of slopes")
    return [Slopes.model_validate(entry) for entry in entries[1:]]


def _fractions(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < fraction < 1 for fraction in found):
        raise ConfigError(f"expected keep fractions between 0 and 1, found {text!r}")
    return found
