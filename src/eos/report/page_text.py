"""Page text: what the page says of its source before and after the charts, from its files."""

from collections.abc import Mapping, Sequence
from typing import Any

from eos.evaluation.estimates import signed, write_accuracy
from eos.evaluation.reproduction import Programme
from eos.evaluation.study import FULL_ROW, Study, StudyRow, compare

SEARCHED = "eos"  # method of the plans that the default search found
SHOWN = 64  # budget that the page opens with, where there is one
ROUNDING = 1.005  # FLOPs that integer counts may add


def about(setting: Mapping[str, str], *, backbone: str, quick: bool) -> list[str]:
    """Say in a line what the results are of."""
    parts = [
        setting.get("backbone", backbone),
        *(f"{setting[key]} {key}" for key in ("layers", "visual tokens") if key in setting),
    ]
    if setting:
        parts.append(f"task {setting['task']}, {setting['questions a family']} questions a family")
    return [*parts, "quick programme: few questions, wide errors"] if quick else parts


def first_searched(study: Study) -> dict[float | str, StudyRow]:
    """Give the searched plan of each budget, largest first; of several seeds the first."""
    found: dict[float | str, StudyRow] = {}
    for row in sorted(study.rows, key=lambda row: -row.cost.final_tokens):
        if row.method == SEARCHED and "budget" in row.factors:
            found.setdefault(row.factors["budget"], row)
    return found


def best_prior(study: Study, own: StudyRow) -> StudyRow | None:
    """Find the best prior method at a plan's budget that costs no more FLOPs."""
    limit = own.cost.flops_ratio * ROUNDING
    rivals = [
        row
        for row in study.rows
        if not row.searched
        and row.method != FULL_ROW
        and row.factors.get("budget") == own.factors["budget"]
        and row.cost.flops_ratio <= limit
    ]
    return max(rivals, key=lambda row: row.average.accuracy, default=None)


def highlights(study: Study) -> list[list[str]]:
    """Write the numbers that open the page: name, value and what must be said with it."""
    found = first_searched(study)
    shown = found.get(SHOWN) or next(iter(found.values()), None)
    full = study.row(FULL_ROW)
    accuracy, _, error = write_accuracy(full.average).partition(" ")
    figures = [["full model", f"{accuracy} %", f"{error}, n {full.average.n}"]]
    if shown is None:
        return figures
    figures.append(_searched(shown))
    rival = best_prior(study, shown)
    if rival is not None:
        ahead = compare(shown, rival)
        interval = f"95% interval {signed(ahead.low)} to {signed(ahead.high)}"
        note = f"{interval}; the best prior method at no more FLOPs"
        figures.append([f"ahead of {rival.method}", f"{signed(ahead.points)} points", note])
    least = list(found.values())[-1]
    return figures if least is shown else [*figures, _searched(least)]


def _searched(row: StudyRow) -> list[str]:
    accuracy, _, error = write_accuracy(row.average).partition(" ")
    name = f"searched, {row.cost.final_tokens} tokens"
    return [name, f"{accuracy} %", f"{error}, FLOPs ×{row.cost.flops_ratio:.3f}"]


def facts(
    studies: Sequence[Study], programme: Programme | None, settings: Sequence[Mapping[str, str]]
) -> list[tuple[str, str]]:
    """List commit, versions, machine, seeds and questions."""
    known = [file.environment for file in (programme, *studies) if file is not None]
    environment: dict[str, Any] = known[0] if known else {}
    git = environment.get("git") or {}
    packages = environment.get("packages") or {}
    machine = [environment.get(key) for key in ("system", "device", "dtype")]
    seeds = [environment.get("seed"), *(study.seed for study in studies)]
    found = {
        "commit": git.get("commit", "") + (", with changes" if git.get("dirty") else ""),
        "eos": environment.get("eos", ""),
        "Python": environment.get("python", ""),
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items()),
        "machine": ", ".join(str(part) for part in machine if part),
        "seeds": ", ".join(dict.fromkeys(str(seed) for seed in seeds if seed is not None)),
    }
    lines = [
        (
            "questions",
            f"{own['task']}, split {own['split']}, seed {own['seed']}, "
            f"{own['questions a family']} a family: {own['families']}",
        )
        for own in settings
    ]
    return [*((name, value) for name, value in found.items() if value), *lines]


def commands(studies: Sequence[Study], programme: Programme | None) -> list[str]:
    """List the commands that repeat the results, each once."""
    files = [file for file in (programme, *studies) if file is not None]
    return list(dict.fromkeys(command for file in files for command in file.commands))
