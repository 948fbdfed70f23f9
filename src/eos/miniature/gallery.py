"""Gallery: one picture of each family of questions, with a question and the model's answer.

``python -m eos.miniature.gallery --out docs/miniature`` writes a page and its pictures.
"""

from pathlib import Path
from typing import Annotated

import typer
from PIL import Image

from eos.miniature.families import QUESTION_FAMILIES
from eos.miniature.scenes import SCENE_KINDS
from eos.miniature.world import EVALUATED, Example, example
from eos.models.backbone import load_backbone
from eos.models.processor import continue_greedily, load_processor, read_conversations

ZOOM = 3
HEAD = """# The miniature's world

One test picture for each family of questions, three times its size, with the answer of the full
model as it is packaged. The world is small scale: what a reduction does here says which tokens a
kind of question needs, not how a method scores on a public benchmark.

| picture | kind | family | imitates | question | right | the model |
|---|---|---|---|---|---|---|
"""


def gallery(model: str, out: Path, *, seed: int = 0) -> Path:
    """Write pictures and page; the pictures are the first of each family, whatever the answers."""
    out.mkdir(parents=True, exist_ok=True)
    backbone, processor = load_backbone(model), load_processor(model)
    kinds, rows = tuple(SCENE_KINDS), []
    for family in sorted(EVALUATED, key=lambda name: kinds.index(QUESTION_FAMILIES[name].kind)):
        item = example("test", family, 0, seed=seed)
        inputs = read_conversations(processor, [item.messages()])
        words = len(item.question.answer.split())
        answer = continue_greedily(
            backbone.model, inputs, processor=processor, new_tokens=words + 1
        )[0]
        side = item.image.width * ZOOM
        item.image.resize((side, side), Image.Resampling.NEAREST).save(out / f"{family}.png")
        rows.append(_row(item, answer))
    page = out / "gallery.md"
    page.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    return page


def _row(item: Example, answer: str) -> str:
    family, question = QUESTION_FAMILIES[item.family], item.question
    text = "<br>".join([f"{q} *{a}*" for q, a in question.history] + [question.text])
    shown = answer if answer == question.answer else f"**{answer}**"
    picture = f"![{item.family}]({item.family}.png)"
    cells = [picture, family.kind, item.family, family.imitates, text, question.answer, shown]
    return f"| {' | '.join(cells)} |"


def main(
    out: Annotated[Path, typer.Option(help="Folder of the page and its pictures.")],
    model: Annotated[str, typer.Option(help="Whose answers to show.")] = "miniature",
) -> None:
    """Write the gallery."""
    typer.echo(gallery(model, out))


if __name__ == "__main__":
    typer.run(main)
