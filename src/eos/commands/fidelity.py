"""`eos fidelity`: measure, show, save as JSON and Markdown."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eos.commands import options
from eos.commands.terminal import progress_bar, show_result
from eos.errors import ConfigError

if TYPE_CHECKING:
    from eos.evaluation.fidelity import Fidelity
    from eos.evaluation.slopes import SlopeMethod, Slopes
    from eos.models import backbone as models
    from eos.runs.journal import Journal


def fidelity(
    out: options.Out,
    backbone: options.Backbone = "miniature",
    samples: Annotated[int, typer.Option(help="Questions of the world to measure on.")] = 240,
    fractions: Annotated[
        str, typer.Option(help="Kept of the visual tokens, with commas between.")
    ] = "0.5,0.2,0.05",
    method: Annotated[
        list[str] | None,
        typer.Option(help="A way to estimate slopes, such as measured; repeatable, all if none."),
    ] = None,
    device: options.Device = None,
    dtype: options.DtypeChoice = None,
    attention: options.AttentionChoice = None,
    batch_size: options.BatchSize = 8,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare the gradients of a search with what removing tokens really does, layer by layer."""
    from eos.report.fidelity import markdown, show_fidelity
    from eos.runs.files import write_atomically
    from eos.runs.lock import locked

    kept, methods = _fractions(fractions), _methods(method)
    options.check_before_loading(out)
    loaded = options.load_chosen(backbone, device=device, dtype=dtype, attention=attention)
    with locked(out):
        found = fidelity_watched(
            loaded,
            kept,
            methods=methods,
            samples=samples,
            batch=batch_size,
            seed=seed,
            out=out,
            quiet=quiet,
        )
        found.save(out / "fidelity.json")
        write_atomically(out / "fidelity.md", markdown(found))
    print(f"saved {out / 'fidelity.json'} and {out / 'fidelity.md'}", file=sys.stderr)
    show_result(found, show_fidelity, as_json=as_json)


def fidelity_watched(
    backbone: "models.Backbone",
    fractions: list[float],
    *,
    methods: "dict[str, SlopeMethod]",
    samples: int,
    batch: int,
    seed: int,
    out: Path,
    quiet: bool,
) -> "Fidelity":
    """Measure on the world's validation questions with a progress bar.

    Every measurement is written at once: rerun to resume.
    """
    from eos.data.batches import Reader
    from eos.data.settings import WorldData
    from eos.data.sources import open_source
    from eos.evaluation.fidelity import measure_fidelity
    from eos.models.processor import fingerprint, load_processor, model_name
    from eos.runs.journal import Journal

    model = backbone.model
    source = open_source(WorldData(split="validation", seed=seed))
    reader = Reader(source, load_processor(model), "last")
    about = {"weights": fingerprint(model), "methods": list(methods), "batch": batch}
    about |= {"fractions": fractions, "seed": seed}
    journal = Journal(out / "slopes.jsonl")
    known = read_slopes(journal, about)[: samples // batch]
    done = [sum(slopes.samples for slopes in known)]
    with progress_bar("questions", quiet=quiet) as update:

        def watch(slopes: "Slopes") -> None:
            if slopes.samples == batch:  # a shorter one is the last, and with more samples another
                journal.add(slopes.model_dump_json())
                journal.flush()
            done[0] += slopes.samples
            update(done[0], samples)

        return measure_fidelity(
            backbone,
            reader=reader,
            batch=reader.first(samples, at_once=batch),
            name=model_name(model),
            fractions=fractions,
            methods=methods,
            known=known,
            watch=watch,
        )


def read_slopes(journal: "Journal", about: dict[str, Any]) -> "list[Slopes]":
    """Read what was measured before in the same way; begin the file if there is none."""
    from eos.evaluation.slopes import Slopes
    from eos.runs.identity import check_same

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


def _methods(names: list[str] | None) -> "dict[str, SlopeMethod]":
    from eos.evaluation.fidelity import SLOPE_METHODS

    unknown = [name for name in names or () if name not in SLOPE_METHODS]
    if unknown:
        known = "; ".join(SLOPE_METHODS)  # names have commas
        raise ConfigError(f"expected methods out of: {known}; found {unknown[0]!r}")
    return {name: SLOPE_METHODS[name] for name in names or SLOPE_METHODS}
