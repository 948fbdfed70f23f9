"""Examples: what plans do with the tokens of a few pictures, and what they answer."""

from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from math import inf, isqrt
from typing import Any

import torch
from PIL import Image

from eos.engine.observing import Observation
from eos.engine.reduced import Reduction, attached
from eos.evaluation.answering import Answerer
from eos.evaluation.reproduction import (
    ExampleAnswer,
    ExampleItem,
    ExamplePlan,
    ExampleRun,
    Examples,
    ExampleStep,
    Flow,
    OperatorExample,
    OperatorView,
)
from eos.evaluation.tasks import Item, Task
from eos.models.processor import continue_greedily, place_inputs, read_conversations
from eos.operator.operate import main_anchors
from eos.space.plan import Plan
from eos.space.step import Operator, Step

PIXELS = 96  # of an example's picture
TRACE = 0.01  # share of a token below which nothing of it is left
CORNERS = {
    "prune": Operator(),
    "merge": Operator(gamma=1.0, tau=0.0, theta=-inf),
    "pool": Operator(gamma=1.0, tau=inf, theta=-inf),
    "reweight": Operator(rho=1.5, theta=-inf),
}
SEARCHED = "searched"


def make_examples(
    answerer: Answerer,
    task: Task,
    plans: Mapping[int, tuple[str, Plan]],
    *,
    split: str,
    seed: int,
    count: int = 2,
) -> Examples:
    """Answer the first questions of every family under the plans, and observe their steps.

    Args:
        answerer: model and processor.
        task: questions, with images.
        plans: name and plan by budget.
        split: of the questions.
        seed: of the questions.
        count: questions of a family.
    """
    backbone = answerer.backbone
    items = [
        (family, task.item(split, family, number=number, seed=seed))
        for family in task.families
        for number in range(task.families[family].count(split, count))
    ]
    largest = plans[max(plans)][1]
    return Examples(
        backbone=largest.backbone,
        num_layers=backbone.num_layers,
        visual_tokens=largest.visual_tokens,
        budgets=tuple(plans),
        sites=tuple(range(-1, backbone.num_layers - 1)),
        plans={
            budget: ExamplePlan(name=name, plan=dump_plan(plan))
            for budget, (name, plan) in plans.items()
        },
        items=tuple(
            _example(answerer, task, item, family=family, plans=plans) for family, item in items
        ),
        operators=_operators(answerer, items[0][1], plans[min(plans)][1]),
    )


def dump_plan(plan: Plan) -> dict[str, Any]:
    """Write a plan as JSON data, without where it came from."""
    return plan.model_dump(mode="json", by_alias=True, exclude={"provenance"})


def _example(
    answerer: Answerer,
    task: Task,
    item: Item,
    *,
    family: str,
    plans: Mapping[int, tuple[str, Plan]],
) -> ExampleItem:
    length = task.max_new_tokens or answerer.answer_length([item], spare=task.spare_tokens)
    full, _ = answer_observed(answerer, item, None, new_tokens=length)
    runs = {}
    for budget, (_, plan) in plans.items():
        text, seen = answer_observed(answerer, item, plan, new_tokens=length)
        runs[budget] = ExampleRun(answer=text, steps=tuple(_step(each) for each in seen))
    parts = [part for message in item.messages for part in message["content"]]
    return ExampleItem(
        question=" ".join(part["text"] for part in parts if part["type"] == "text"),
        answer=item.answers[0],
        family=family,
        image=data_uri(_image(item)),
        grid=grid_of(answerer.visual_tokens(item)),
        full=ExampleAnswer(answer=full),
        plans=runs,
    )


@torch.no_grad()
def answer_observed(
    answerer: Answerer, item: Item, plan: Plan | None, *, new_tokens: int
) -> tuple[str, list[Observation]]:
    """Answer one question, and list what each step of the plan did."""
    backbone, seen = answerer.backbone, list[Observation]()
    inputs = read_conversations(answerer.processor, [item.messages])
    inputs = place_inputs(backbone.model, inputs)
    if plan is None:
        tokens = answerer.visual_tokens(item)
        plan = Plan(visual_tokens=tokens, num_layers=backbone.num_layers, steps=())
    with attached(Reduction(backbone, plan, observer=seen.append)) as model:
        texts = continue_greedily(
            model, inputs, processor=answerer.processor, new_tokens=new_tokens
        )
    return texts[0], seen


def _step(seen: Observation) -> ExampleStep:
    flows, _ = flows_of(seen)
    return ExampleStep(layer=seen.step.layer, kept=tuple(seen.kept[0].tolist()), flows=flows)


def flows_of(seen: Observation) -> tuple[tuple[Flow, ...], tuple[float, ...]]:
    """Find each dropped token's main anchor and the share of the token that it gets."""
    tokens, kept = seen.tokens[0].tolist(), seen.kept[0].tolist()
    stays = set(kept)
    dropped = [place for place, token in enumerate(tokens) if token not in stays]
    names = [tokens[place] for place in dropped]
    operator = seen.step.operator
    if not dropped or not isinstance(operator, Operator):  # an author's own has no such anchors
        return tuple((token, None) for token in names), (0.0,) * len(names)
    anchors = [place for place, token in enumerate(tokens) if token in stays]
    states, omega = seen.states[0], operator.omega
    omega = omega._replace(gamma=max(operator.gamma, operator.mass))  # states or attention
    nearest, shares = main_anchors(states[anchors], states[dropped], omega)
    flows = [
        (token, kept[anchor] if share >= TRACE else None)
        for token, anchor, share in zip(names, nearest.tolist(), shares.tolist(), strict=True)
    ]
    return tuple(flows), tuple(round(share, 4) for share in shares.tolist())


def _operators(answerer: Answerer, item: Item, plan: Plan) -> OperatorExample:
    """Apply each corner, and the operator of a searched plan, after one layer to one picture."""
    own = _central(plan)
    length = answerer.answer_length([item])
    views = {}
    for name, operator in {**CORNERS, SEARCHED: own.operator}.items():
        step = own.model_copy(update={"operator": operator})
        alone = plan.model_copy(update={"steps": (step,)})
        _, seen = answer_observed(answerer, item, alone, new_tokens=length)
        views[name] = _view(seen[0])
    return OperatorExample(
        image=data_uri(_image(item)),
        grid=grid_of(plan.visual_tokens),
        layer=own.layer,
        keep=own.keep,
        score=own.score,
        operators=views,
    )


def _central(plan: Plan) -> Step:
    """Take the step whose operator transfers most; the last of equals."""

    def transfer(step: Step) -> float:
        return step.operator.gamma if isinstance(step.operator, Operator) else -1.0

    return max(reversed(plan.steps), key=transfer)


def _view(seen: Observation) -> OperatorView:
    flows, shares = flows_of(seen)
    before = dict(zip(seen.tokens[0].tolist(), seen.states[0].norm(dim=-1).tolist(), strict=True))
    kept, after = seen.kept[0].tolist(), seen.after[0].norm(dim=-1).tolist()
    scales = [
        round(now / max(before[token], 1e-12), 4) for token, now in zip(kept, after, strict=True)
    ]
    return OperatorView(kept=tuple(kept), flows=flows, weights=shares, scales=tuple(scales))


def _image(item: Item) -> Image.Image:
    parts = [part for message in item.messages for part in message["content"]]
    found: Image.Image = next(part["image"] for part in parts if part["type"] == "image")
    return found


def data_uri(image: Image.Image) -> str:
    """Write a picture as a data URI of a small PNG."""
    buffer = BytesIO()
    image.convert("RGB").resize((PIXELS, PIXELS)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(buffer.getvalue()).decode("ascii")


def grid_of(tokens: int) -> tuple[int, int]:
    """Lay tokens out in rows and columns: a square, else one row."""
    side = isqrt(tokens)
    return (side, side) if side * side == tokens else (1, tokens)
