"""Consistency: whether a plan's steps can follow each other in a decoder of its size."""

from typing import TYPE_CHECKING

from eos.errors import EosError
from eos.space.mixture import components

if TYPE_CHECKING:
    from eos.space.plan import Plan


def contradictions(plan: "Plan") -> list[str]:
    """Find every way in which a plan contradicts itself or what exists."""
    problems, available, previous = [], plan.visual_tokens, -2
    for i, step in enumerate(plan.steps):
        where = f"steps.{i}"
        if not -1 <= step.layer < plan.num_layers:
            problems.append(
                f"{where}.layer: expected -1 to {plan.num_layers - 1}, found {step.layer}"
            )
        if step.layer <= previous:
            problems.append(f"{where}.layer: expected a layer after {previous}, found {step.layer}")
        if not 1 <= step.keep <= available:
            problems.append(
                f"{where}.keep: expected 1 to {available}, all that are left, found {step.keep}"
            )
        try:
            components(step.score)
        except EosError as failure:
            problems.append(f"{where}.score: {failure}")
        available, previous = min(available, max(step.keep, 1)), max(previous, step.layer)
    return problems
