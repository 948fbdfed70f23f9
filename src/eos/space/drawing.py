"""Drawing: a plan as a plain table of its steps, with what it costs."""

from typing import TYPE_CHECKING

from eos.methods import DEPTH
from eos.space.step import Operator, Step

if TYPE_CHECKING:
    from eos.space.plan import Plan


def draw(plan: "Plan") -> str:
    """Write one row a step, then what the plan costs."""
    greek = " ".join(f"{letter:>6}" for letter in "γτθρν")
    width = max([16, *(len(step.score) for step in plan.steps)])
    header = f"{'layer':>5}  {'keep':>5}  {'score':<{width}}  {greek}  regime"
    rows = [_row(step, width) for step in plan.steps] or ["(no steps: the full model)"]
    expected = plan.expected
    footer = (
        f"{plan.backbone}: {plan.visual_tokens} tokens, {plan.num_layers} layers -> "
        f"{expected.final_tokens} final, {expected.mean_tokens:.1f} mean entering a layer, "
        f"FLOPs x{expected.flops_ratio:.3f}, KV x{expected.kv_bytes_ratio:.3f} "
        f"(with {plan.text_tokens} text tokens)"
    )
    note = []
    if "preset" in plan.provenance and plan.num_layers != DEPTH:
        note = [f"layers: published for {DEPTH}, at the same share of {plan.num_layers} here"]
    return "\n".join([header, *rows, footer, *note])


def _row(step: Step, width: int) -> str:
    numbers = " ".join(["     -"] * 5)
    if isinstance(step.operator, Operator):
        numbers = " ".join(f"{value:6.3g}" for value in step.operator.omega)
    score = f"{step.score:<{width}}"
    return f"{step.layer:5d}  {step.keep:5d}  {score}  {numbers}  {step.operator.label}"
