"""Specs: named plans that fit the model they will run on."""

from collections.abc import Iterable, Mapping

from eos.errors import ConfigError, PlanError, numbered
from eos.evaluation.settings import FULL
from eos.models.backbone import Backbone
from eos.models.processor import text_length
from eos.space.plan import Plan
from eos.space.specs import Target, read_spec


def named_plans(
    plans: Mapping[str, Plan] | Iterable[str | Plan] | str,
    backbone: Backbone,
    *,
    visual_tokens: int,
    text_tokens: int | None = None,
) -> dict[str, Plan]:
    """Give plans of a model by the names they have in tables, costs at the model's own sizes.

    Args:
        plans: by name, or as specs (`eos.space.specs`).
        backbone: the model.
        visual_tokens: of its prompts.
        text_tokens: that costs assume; if None, a short question.
    """
    text = text_length(backbone.model) if text_tokens is None else text_tokens
    target = Target(visual_tokens, backbone.num_layers, backbone.dims, text)
    if isinstance(plans, Mapping):
        found = list(plans.items())
    else:
        given = [plans] if isinstance(plans, str) else list(plans)
        found = [pair for spec in given for pair in _named(spec, target)]
    names = [name for name, _ in found]
    problems = [
        f"expected plans of different names; found {name!r} twice. NAME=FILE gives a plan a name"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    tokens = None if backbone.family.any_count else visual_tokens  # None: plans are rescaled
    problems += misfits(found, visual_tokens=tokens, num_layers=backbone.num_layers)
    if problems:
        raise PlanError(numbered(problems))
    sizes = {"dims": target.dims, "text_tokens": text}
    return {name: plan.model_copy(update=sizes) for name, plan in found}


def _named(spec: str | Plan, target: Target) -> list[tuple[str, Plan]]:
    """Name a plan by its final tokens, or read a spec."""
    if isinstance(spec, Plan):
        return [(f"plan@{spec.expected.final_tokens}", spec)]
    if not isinstance(spec, str):
        raise ConfigError(
            "expected plans by name, a list of eos.Plan, or specs such as 'fastv@64'; found "
            f"{type(spec).__name__}"
        )
    return read_spec(spec, target)


def misfits(
    plans: Iterable[tuple[str, Plan]], *, visual_tokens: int | None, num_layers: int
) -> list[str]:
    """Say which plans a model of these sizes cannot run, or cannot run under their name.

    ``visual_tokens`` is None where an image may have any number of them.
    """
    problems = []
    for name, plan in plans:
        if name == FULL:
            problems.append(f"expected another name for a plan than {FULL!r}")
        tokens = plan.visual_tokens if visual_tokens is None else visual_tokens
        if (plan.visual_tokens, plan.num_layers) != (tokens, num_layers):
            problems.append(
                f"expected plans for {tokens} visual tokens and {num_layers} layers, as the "
                f"model has; found {name!r} for {plan.visual_tokens} and {plan.num_layers}"
            )
    return problems
