"""Page text: what the page says of its source before and after the charts, from its files."""

from collections.abc import Mapping, Sequence
from typing import Any

from eos.evaluation.estimates import signed, write_accuracy
from eos.evaluation.study import FULL_ROW, Study, StudyRow, compare

SEARCHED = "eos"  # method of the plans that the default search found
SHOWN = 64  # budget that the page opens with, where there is one
ROUNDING = 1.005  # FLOPs that integer counts may add


def about(setting: Mapping[str, str], *, quick: bool) -> list[str]:
    """Say in a line what the results are of."""
    if not setting:
        return ["no studies"]
    questions = f"task {setting['task']}, {setting['questions a family']} questions a family"
    sizes = [f"{setting[key]} {key}" for key in ("layers", "visual tokens")]
    note = ["quick programme: few questions, wide errors"] if quick else []
    return [setting["backbone"], *sizes, questions, *note]


def first_searched(study: Study) -> dict[float | str, StudyRow]:
    """Give the searched plan of each budget, largest first; of several seeds the first."""
    found: dict[float | str, StudyRow] = {}
    for row in sorted(study.rows, key=lambda row: -row.cost.final_tokens):
        if row.method == SEARCHED and "budget" in row.factors:
            found.setdefault(row.factors["budget"], row)
    return found


def best_prior(study: Study, own: StudyRow) -> StudyRow | None:
    """Find the best prior method at a plan's budget that costs no more FLOPs."""
    within = prior_within(study, own.cost.flops_ratio)
    rivals = [row for row in within if row.factors.get("budget") == own.factors["budget"]]
    return max(rivals, key=lambda row: row.average.accuracy, default=None)


def prior_within(study: Study, flops: float) -> list[StudyRow]:
    """List the rows of prior methods that cost no more FLOPs, whatever they keep."""
    return [
        row
        for row in study.rows
        if not row.searched and row.method != FULL_ROW and row.cost.flops_ratio <= flops * ROUNDING
    ]


def _shown(study: Study) -> StudyRow | None:
    found = first_searched(study)
    return found.get(SHOWN) or next(iter(found.values()), None)


def strongest_rival(study: Study) -> str | None:
    """Name the best prior method beside the plan that the page opens with."""
    shown = _shown(study)
    rival = best_prior(study, shown) if shown else None
    return rival.method if rival else None


def highlights(study: Study) -> list[list[str]]:
    """Write the numbers that open the page: name, value and what must be said with it."""
    full, shown = study.row(FULL_ROW), _shown(study)
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
    least = list(first_searched(study).values())[-1]
    return figures if least is shown else [*figures, _searched(least)]


def _searched(row: StudyRow) -> list[str]:
    accuracy, _, error = write_accuracy(row.average).partition(" ")
    name = f"searched, {row.cost.final_tokens} tokens"
    return [name, f"{accuracy} %", f"{error}, FLOPs ×{row.cost.flops_ratio:.3f}"]


def facts(
    environments: Sequence[Mapping[str, Any]], settings: Sequence[Mapping[str, str]]
) -> list[tuple[str, str]]:
    """List commits, versions, machines, seeds and questions, each once."""
    told = [fact for own in environments for fact in _environment(own).items()]
    for own in settings:
        which = f"{own['task']}, split {own['split']}, seed {own['seed']}"
        many = f"{own['questions a family']} a family: {own['families']}"
        told.append(("questions", f"{which}, {many}"))
    found: dict[str, list[str]] = {}
    for name, value in told:
        if value and value not in found.setdefault(name, []):
            found[name].append(value)
    return [(name, "; ".join(values)) for name, values in found.items()]


def _environment(own: Mapping[str, Any]) -> dict[str, str]:
    git, packages = own.get("git") or {}, own.get("packages") or {}
    machine = [own.get(key) for key in ("system", "device", "dtype")]
    return {
        "commit": git.get("commit", "") + (", with changes" if git.get("dirty") else ""),
        "eos": own.get("eos", ""),
        "Python": own.get("python", ""),
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items()),
        "machine": ", ".join(str(part) for part in machine if part),
        "seed": str(own.get("seed", "")),
    }
