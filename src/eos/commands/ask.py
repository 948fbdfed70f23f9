"""`eos ask`: a picture and a question, answered by the full model and under plans."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eos.commands import options
from eos.commands.terminal import table_width
from eos.errors import DataError

if TYPE_CHECKING:
    from eos.models import backbone as models

DEFAULT = ["eos-miniature@64"]  # of the miniature; of other models
OTHERWISE = ["fastv@64"]
WIDTH = 100  # of tables that go to a file


def ask(
    image: Annotated[Path, typer.Argument(help="A picture.")],
    question: Annotated[str, typer.Argument(help="What to answer about it.")],
    backbone: options.Backbone = "miniature",
    plans: options.Plans = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Length of an answer at most.")] = 20,
    device: options.Device = None,
    dtype: options.DtypeChoice = None,
    attention: options.AttentionChoice = None,
    as_json: options.AsJson = False,
) -> None:
    """Answer a question about a picture, by the full model and under plans, side by side.

    Without --plan, the miniature's searched plan of 64 tokens, or FastV's of other models. The
    miniature knows the words of its world: eos ask picture.png "is there a red circle ?"
    """
    from rich.console import Console

    from eos.report.layout import Grid, show_grid

    picture = read_picture(image)
    loaded = options.load_chosen(backbone, device=device, dtype=dtype, attention=attention)
    specs = plans or (DEFAULT if backbone == "miniature" else OTHERWISE)
    rows = answered(loaded, picture, question, specs=specs, max_new_tokens=max_new_tokens)
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    cells = [(x["run"], str(x["final_tokens"]), f"{x['flops']:.3f}", x["answer"]) for x in rows]
    heads = ("run", "final tokens", "FLOPs", "answer")
    grid = Grid(heads, cells, title=question, left=("answer",))
    show_grid(Console(width=table_width(WIDTH)), grid)


def read_picture(path: Path) -> Any:
    """Open a picture before a model is loaded."""
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(path).convert("RGB")
    except (OSError, UnidentifiedImageError) as failure:
        raise DataError(f"expected a picture, found {path}: {failure}") from None


def answered(
    backbone: "models.Backbone",
    picture: Any,
    question: str,
    *,
    specs: list[str],
    max_new_tokens: int,
) -> list[dict[str, Any]]:
    """Answer with the full model, then under every plan."""
    from eos.evaluation.answering import Answerer
    from eos.evaluation.settings import FULL
    from eos.evaluation.specs import named_plans
    from eos.evaluation.tasks import Item
    from eos.models.processor import load_processor

    content = [{"type": "image", "image": picture}, {"type": "text", "text": question}]
    item = Item([{"role": "user", "content": content}], (), None, "question")
    answerer = Answerer(backbone, load_processor(backbone.model))
    tokens = answerer.visual_tokens(item)
    runs = {FULL: None, **named_plans(specs, backbone, visual_tokens=tokens)}
    found = []
    for name, texts in answerer.answers([item], runs, max_new_tokens=max_new_tokens):
        plan = runs[name]
        cost = {"final_tokens": tokens, "flops": 1.0}
        if plan is not None:
            cost = {"final_tokens": plan.schedule[-1], "flops": plan.expected.flops_ratio}
        found.append({"run": name, **cost, "answer": texts[0]})
    return found
