"""Specs: plans as a person names them, such as ``fastv@192,64``, ``plan.json`` or ``a=plan.json``.

A preset is made for the model at hand; a file must be.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from eos.errors import ConfigError, PlanError, numbered
from eos.evaluation.settings import FULL
from eos.methods.registry import PRESETS
from eos.models.backbone import Backbone
from eos.models.processor import text_length
from eos.space.plan import Plan
from eos.space.searched import load_searched, searched


def named_plans(
    plans: Mapping[str, Plan] | Iterable[str], backbone: Backbone, *, visual_tokens: int
) -> dict[str, Plan]:
    """Make plans for a model, by the names they have in tables, costs at the model's own sizes."""
    if isinstance(plans, Mapping):
        found = list(plans.items())
    else:
        found = [pair for spec in plans for pair in _read(spec, backbone, visual_tokens)]
    names = [name for name, _ in found]
    problems = [
        f"expected plans of different names; found {name!r} twice. NAME=FILE gives a plan a name"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    problems += misfits(found, visual_tokens=visual_tokens, num_layers=backbone.num_layers)
    if problems:
        raise PlanError(numbered(problems))
    sizes = {"dims": backbone.dims, "text_tokens": text_length(backbone.model)}
    return {name: plan.model_copy(update=sizes) for name, plan in found}


def misfits(plans: Iterable[tuple[str, Plan]], *, visual_tokens: int, num_layers: int) -> list[str]:
    """Say which plans a model of these sizes cannot run, or cannot run under their name."""
    problems = []
    for name, plan in plans:
        if name == FULL:
            problems.append(f"expected another name for a plan than {FULL!r}")
        if (plan.visual_tokens, plan.num_layers) != (visual_tokens, num_layers):
            problems.append(
                f"expected plans for {visual_tokens} visual tokens and {num_layers} layers, as the "
                f"model has; found {name!r} for {plan.visual_tokens} and {plan.num_layers}"
            )
    return problems


def _read(spec: str, backbone: Backbone, tokens: int) -> list[tuple[str, Plan]]:
    preset, _, budgets = spec.rpartition("@")
    if preset and not Path(spec).exists() and "=" not in spec:
        return [
            (f"{preset}@{budget}", _preset(preset, budget, backbone, tokens))
            for budget in _numbers(budgets, spec)
        ]
    name, _, file = spec.rpartition("=")
    path = Path(file)
    if not path.exists() and file in PRESETS:
        raise ConfigError(f"expected a budget with a preset, as in {file}@64; found {spec!r}")
    path = path / "plan.json" if path.is_dir() else path
    if not name:
        name = path.resolve().parent.name if path.stem == "plan" else path.stem
    return [(name, Plan.load(path))]


def _preset(name: str, budget: int, backbone: Backbone, tokens: int) -> Plan:
    if name in searched():
        return load_searched(name, budget)
    return Plan.preset(
        name,
        budget=budget,
        visual_tokens=tokens,
        num_layers=backbone.num_layers,
        dims=backbone.dims,
        text_tokens=text_length(backbone.model),
    )


def _numbers(text: str, spec: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"expected a preset and budgets, as in fastv@64 or fastv@192,64; found {spec!r}"
        ) from None
