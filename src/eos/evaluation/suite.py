"""Suite: several benchmarks in one run, each in a folder of its own, then one table.

``out/<benchmark>/`` is an evaluation like any other: it resumes, and refuses other questions, model
or plans of the same name. ``out/overall.json`` holds the table.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from eos.errors import ConfigError, DataError
from eos.evaluation.benchmarks.loading import expected
from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.evaluate import evaluate
from eos.evaluation.overall import Overall, overall_of
from eos.evaluation.results import Results
from eos.models.backbone import Backbone, load_backbone
from eos.models.processor import locate
from eos.runs.processes import Processes
from eos.space.plan import Plan

ALL = "paper"  # the name of all benchmarks together
SuiteWatch: TypeAlias = Callable[[str, int, int], None]


def benchmark_names(text: str) -> list[str]:
    """Read names of benchmarks, in the paper's order; none if the text names another task.

    >>> benchmark_names("gqa, pope"), benchmark_names("mini:presence")
    (['pope', 'gqa'], [])
    """
    given = [part.strip() for part in text.split(",") if part.strip()]
    if given == [ALL]:
        return list(BENCHMARKS)
    if not any(name in BENCHMARKS for name in given):
        return []
    unknown = [name for name in given if name not in BENCHMARKS]
    if unknown:
        raise ConfigError(
            f"expected benchmarks of {', '.join(BENCHMARKS)}, or {ALL} for all; found "
            f"{', '.join(unknown)} among {text!r}"
        )
    return [name for name in BENCHMARKS if name in given]


def check_folders(names: Sequence[str], data: str | Path | None) -> None:
    """Say which benchmarks have no folder, all at once, before a model is loaded."""
    if data is None:
        return
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(f"expected a folder of benchmarks at {folder}, found none")
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing and len(names) > 1:
        raise DataError(
            problems=[
                f"expected {folder / name} with {expected(BENCHMARKS[name])}; found no such folder"
                for name in missing
            ]
        )


def evaluate_benchmarks(
    backbone: str | Path | Backbone,
    plans: Mapping[str, Plan] | Iterable[str | Plan] | str = (),
    *,
    tasks: Sequence[str] | str,
    out: str | Path,
    data: str | Path | None = None,
    watch: SuiteWatch | None = None,
    **options: Any,
) -> Overall:
    """Evaluate the full model and plans on benchmarks; resume what ``out`` holds.

    Args:
        backbone: a name, a folder, or a model that is already loaded.
        plans: as `evaluate` takes them.
        tasks: names of benchmarks, or ``paper`` for all.
        out: gets a folder for each benchmark, and overall.json.
        data: a folder with one for each benchmark, or of a single one; if None, the datasets of the
            hub or its cache.
        watch: called with the benchmark, its answers so far, and all.
        options: limit, prompts, seed, batch_size, blank and processor, as `evaluate` takes them.
    """
    names = benchmark_names(tasks if isinstance(tasks, str) else ",".join(tasks))
    if not names:
        raise ConfigError(f"expected benchmarks of {', '.join(BENCHMARKS)}; found {tasks!r}")
    check_folders(names, data)
    given = list(plans) if not isinstance(plans, (str, Mapping)) else plans
    loaded = backbone if isinstance(backbone, Backbone) else load_backbone(locate(backbone))
    results: dict[str, Results] = {}
    for name in names:
        own = None if watch is None else partial(watch, name)
        place = Path(out) / name
        results[name] = evaluate(
            loaded, given, out=place, task=name, data=data, watch=own, **options
        )
    overall = overall_of(results)
    if Processes().main:
        overall.save(Path(out) / "overall.json")
    return overall
