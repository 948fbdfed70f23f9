"""Tables of operators: prior methods as points of the space, what a search found, its limits."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from eos.evaluation.study import Study, StudyRow
from eos.report.comparison import at_budget, blocks_by_setting, budget_of, budgets_of, notes_of
from eos.report.figures.overview import searched_plans
from eos.report.plans import GREEK, OMEGA, PlanView, StepView, operator_cells, site, steps_of
from eos.report.reproduction import Reproduction
from eos.report.sheet import Block, Sheet, SheetCell, code, plain
from eos.report.tables.budgets import RIVAL

CONFIGS = Path(str(files("eos"))) / "configs"
METHODS = CONFIGS / "methods.json"  # made by `python -m tests.test_report_tables`
SLOTS = 3  # C, the most layers that may reduce


def unification(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write prior methods as fixed points of the search space (Table 2)."""
    presets = json.loads(METHODS.read_text(encoding="utf-8"))
    rows = [[code(preset["preset"]), *map(plain, _preset_cells(preset))] for preset in presets]
    rows.append([code("eos"), *map(plain, [*["searched"] * 8, "any", "yes"])])
    heads = ["method", "layers", "budget", "score", *GREEK.values(), "regime", "searchable"]
    notes = [
        "Layers of 32, input: before the decoder; budget: published schedules, tokens kept of 576 "
        "at the smallest label. A dash: the parameter does not act, or the authors' own operator "
        "does more than a point of the unified one."
    ]
    title = "Prior methods as fixed points in the search space"
    texts = ("layers", "budget", "score", "regime", "searchable")
    return [Sheet(label, title, heads, [Block("", rows)], notes=notes, texts=texts)]


def _preset_cells(preset: dict[str, Any]) -> list[str]:
    layers, published = preset["layers"], preset["published"]
    budget = "rule"
    if published:
        least = min(published, key=int)
        budget = f"{least}: {', '.join(map(str, published[least]))}"
    step = StepView(layer=0, keep=1, score=preset["score"], operator=preset["operator"])
    where = ", ".join(map(site, layers)) or "rule"
    return [where, budget, preset["score"], *_values(step), step.label, "no"]


def _values(step: StepView) -> list[str]:
    if step.omega is None:
        return ["–"] * 5
    idle = {"tau", "theta"} if step.omega["gamma"] == 0 else set()
    return ["–" if name in idle else f"{step.omega[name]:g}".replace("-", "−") for name in OMEGA]


def per_layer(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write the operator that was found at each reducing layer, budget by budget (Table 6)."""
    plans = searched_plans(reproduction)
    if not plans:
        return []
    blocks = [
        Block(_plan_heading(plan, budget), _plan_rows(plan))
        for budget, plan in sorted(plans.items(), reverse=True)
    ]
    heads = ["slot", "layer", "keep", "score", *GREEK.values(), "regime"]
    notes = ["A dash: the parameter does not act at the prune corner."]
    title = "Searched operator regime at each reducing layer"
    texts = ("layer", "score", "regime")
    return [Sheet(label, title, heads, blocks, notes=notes, texts=texts)]


def _plan_heading(plan: PlanView, budget: int) -> str:
    cost = plan.expected
    return (
        f"{budget} final tokens, {cost.mean_tokens:.1f} mean tokens, {cost.flops_ratio:.3f} of the "
        "full model's FLOPs"
    )


def _plan_rows(plan: PlanView) -> list[list[SheetCell]]:
    rows = []
    for slot, step in enumerate(plan.steps, start=1):
        *numbers, label = operator_cells(step)
        numbers = [number.replace("-", "−") for number in numbers]
        first = [f"l{slot}", site(step.layer), str(step.keep)]
        rows.append([*map(plain, first), code(step.score), *map(plain, [*numbers, label])])
    return rows


def constraints(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write whether each searched plan keeps within its limits (Table 1)."""
    studies = [study for study in reproduction.studies if study.name == "main"]
    if not studies:
        return []
    heads = ["plan", "final tokens", "limit B", "reducing layers", "limit C", "FLOPs", "limit F"]
    blocks = blocks_by_setting(studies, _constraint_blocks)
    limit = f"F: FLOPs of {RIVAL} at the same budget, relative to the full model's."
    notes = [limit, *notes_of(studies)]
    title = "One-sided constraints: an active one is exceeded"
    return [Sheet(label, title, [*heads, "active"], blocks, notes=notes, texts=("active",))]


def _constraint_blocks(study: Study) -> list[Block]:
    rows = []
    for budget in budgets_of(study.rows):
        own = at_budget(study, budget)
        limit = next((row.cost.flops_ratio for row in own if row.method == RIVAL), None)
        rows += [_constraint_cells(row, limit) for row in own if row.searched]
    return [Block("", rows)]


def _constraint_cells(row: StudyRow, limit: float | None) -> list[SheetCell]:
    cost, steps = row.cost, len(steps_of(row))
    over = {
        "token budget": cost.final_tokens > budget_of(row),
        "layers": steps > SLOTS,
        "FLOPs": limit is not None and cost.flops_ratio > limit + 5e-4,  # as far as is written
    }
    active = ", ".join(name for name, above in over.items() if above) or "none"
    numbers = [str(cost.final_tokens), str(budget_of(row)), str(steps), str(SLOTS)]
    numbers += [f"{cost.flops_ratio:.3f}", "–" if limit is None else f"{limit:.3f}", active]
    return [code(row.name), *map(plain, numbers)]


def hyperparameters(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write the keys of the searches that ship with the package (Table 5)."""
    configs = {
        path.stem: _flat(yaml.safe_load(path.read_text(encoding="utf-8")))
        for path in sorted((CONFIGS / "search").glob("*.yaml"))
    }
    known = json.loads((CONFIGS / "search-keys.json").read_text(encoding="utf-8"))
    defaults = {entry["key"]: entry["default"] for entry in known}
    keys = list(dict.fromkeys(key for own in configs.values() for key in own))
    columns = [defaults, *configs.values()]
    rows = [[code(key), *(plain(own.get(key, "")) for own in columns)] for key in keys]
    notes = ["An empty cell: the default. Every key and its meaning: docs/cli.md."]
    heads = ["key", "default", *configs]
    title = "Hyperparameters of the searches"
    return [Sheet(label, title, heads, [Block("", rows)], notes=notes, texts=heads)]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Write nested keys with dots.

    >>> _flat({"data": {"kind": "llava"}, "steps": 3})
    {'data.kind': 'llava', 'steps': '3'}
    """
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return found
