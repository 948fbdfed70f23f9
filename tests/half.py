"""Every family in half precision, compared with float32: ``python -m tests.half bfloat16``.

A process of its own, since products in half precision end the process on some CPUs unless
ONEDNN_MAX_CPU_ISA is set before torch is imported. Prints one line of JSON a family.
"""

import copy
import json
import sys

import torch

from eos import Operator, Plan, Step, Theta, reduced
from eos.engine.relaxation import Relaxation, RelaxedTheta
from eos.engine.search_pass import search_pass
from eos.methods.registry import OPERATORS
from eos.models.backbone import Backbone
from eos.models.families import FAMILIES
from eos.space.deployment import Deployment
from eos.testing.tiny import IMAGE, VIDEO, collated, tiny_backbone, tiny_inputs, tiny_samples

HYBRID = Operator(gamma=0.5, tau=0.3, theta=0.0, rho=0.2, nu=0.3)
RELAXATIONS = [Relaxation(), Relaxation(band=0.2), Relaxation(boundary="soft")]


def cast(backbone, inputs):
    """Give pixels in a model's precision."""
    dtype = backbone.model.dtype
    return {k: x.to(dtype) if x.is_floating_point() else x for k, x in inputs.items()}


def plan_of(tokens, *fractions, **fields):
    """Choose by chance, which rounding cannot change."""
    fields = {"score": "random", **fields}
    keeps = [max(2, round(fraction * tokens)) for fraction in fractions]
    steps = [Step(layer=i, keep=keep, **fields) for i, keep in enumerate(keeps)]
    return Plan(visual_tokens=tokens, num_layers=4, steps=steps)


@torch.no_grad()
def spoken(backbone, plan, inputs):
    """Logits of a prompt, and those of two more tokens on its cache."""
    with reduced(backbone, plan) as model:
        said = model.generate(
            **cast(backbone, inputs),
            max_new_tokens=3,
            do_sample=False,
            eos_token_id=None,
            suppress_tokens=[IMAGE, VIDEO],
            return_dict_in_generate=True,
            output_logits=True,
        )
    return torch.stack(said.logits).float()


def searched(backbone, inputs, tokens, relaxation):
    """Gradients of Θ's variables after one pass with alignment."""
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, -3:] = inputs["input_ids"][:, -3:]
    chance = Deployment(score="random", input_score="random")
    theta = Theta.start(4, visual_tokens=tokens, budget=max(2, tokens // 3), deployment=chance)
    inputs = cast(backbone, inputs)
    output = search_pass(
        backbone, RelaxedTheta(theta, relaxation), inputs=inputs, labels=labels, layers=(2,)
    )
    targets = output.targets[output.targets != -100]
    aligned = (output.pairs[0].reduced - output.pairs[0].full).float().square().mean()
    (torch.nn.functional.cross_entropy(output.answers, targets) + aligned).backward()
    return torch.cat([weight.grad.flatten() for weight in theta.weights.values()])


def compared(kind, dtype):
    """How far a family in half precision is from the same weights in float32."""
    half = Backbone(copy.deepcopy(tiny_backbone(kind).model).to(dtype))
    full = Backbone(copy.deepcopy(half.model).float())
    tokens = int(full.visual_mask(tiny_inputs(full)["input_ids"]).sum())
    inputs = collated(tiny_samples(full, texts=(9, 4, 6), images=(1, 2, 1)))
    plan = plan_of(tokens, 0.7, 0.4, operator=HYBRID)
    logits, expected = spoken(half, plan, inputs), spoken(full, plan, inputs)
    assert logits.isfinite().all()
    scale = expected[0].std()
    other = spoken(full, plan_of(tokens, 0.5, 0.2), inputs)
    found = {
        "kind": kind,
        "logits": float((logits[0] - expected[0]).abs().mean() / scale),
        "another plan": float((other[0] - expected[0]).abs().mean() / scale),
    }
    likeness = []
    for relaxation in RELAXATIONS:
        pair = [searched(x, inputs, tokens, relaxation) for x in (half, full)]
        assert pair[0].dtype == torch.float32
        likeness.append(float(torch.cosine_similarity(*pair, dim=0)))
    return {**found, "gradients": min(likeness)}


def operated(kind, dtype):
    """Run a prior method's own operator in half precision; where its logits are finite, True."""
    backbone = Backbone(tiny_backbone("llava").model.to(dtype))
    inputs = tiny_inputs(tiny_backbone("llava"), texts=(7, 4))
    own = {"operator": {"kind": kind}, "positions": "reindex"}
    if "vision" in OPERATORS[kind].needs:
        step = Step(layer=-1, keep=9, score="cls-attention", **own)
        plan = Plan(visual_tokens=36, num_layers=4, steps=[step])
    else:
        plan = plan_of(36, 0.7, 0.4, **own)
    return bool(spoken(backbone, plan, inputs).isfinite().all())


if __name__ == "__main__":
    dtype = getattr(torch, sys.argv[1])
    for kind in FAMILIES:
        print(json.dumps(compared(kind, dtype)))
    for kind in OPERATORS:
        print(json.dumps({"kind": kind, "finite": operated(kind, dtype)}))
