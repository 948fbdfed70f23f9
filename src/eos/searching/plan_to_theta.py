"""Plan to Θ: the inverse of `Plan.from_theta`."""

from eos.space.activations import GROUPS
from eos.space.deployment import Deployment
from eos.space.plan import Plan
from eos.space.step import Operator
from eos.space.theta import Theta


def theta_of(plan: Plan) -> Theta:
    """Write a plan as the point of Θ that it is; `Plan.from_theta` gives the plan back."""
    operators = {x.layer: x.operator for x in plan.steps if isinstance(x.operator, Operator)}
    assert len(operators) == len(plan.steps)
    theta = Theta(
        plan.num_layers,
        visual_tokens=plan.visual_tokens,
        input_site=any(step.layer < 0 for step in plan.steps),
        deployment=Deployment(
            scores={step.layer: step.score for step in plan.steps},
            masses={layer: x.mass for layer, x in operators.items() if x.mass},
            max_layers=max(1, len(plan.steps)),
            dims=plan.dims,
            text_tokens=plan.text_tokens,
            backbone=plan.backbone,
        ),
    )
    theta.fix("g", 0.0).fix("c", 0.0)
    before = plan.visual_tokens
    for step in plan.steps:
        here = [step.layer]
        theta.fix("g", 1.0, layers=here).fix("c", 1.0 - step.keep / before, layers=here)
        for group, value in zip(GROUPS[2:], operators[step.layer].omega, strict=True):
            theta.fix(group, value, layers=here)
        before = step.keep
    return theta
