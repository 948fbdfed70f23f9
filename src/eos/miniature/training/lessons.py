"""Lessons: images with many questions each, packed into sequences for training.

Most sequences ask their questions independently: each sees the image and itself alone, as at test
time, through a block mask and positions that start anew. The others are conversations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from eos.miniature.families import QUESTION_FAMILIES
from eos.miniature.language import ASSISTANT, END, IMAGE, PAD, START, USER, vocabulary
from eos.miniature.questions import Question
from eos.miniature.scenes import Random, WorldScene, draw_scene

MENU = {  # families asked about one image of a kind, and how often at most
    "objects": {
        "presence": 2,
        "attribute": 4,
        "relation": 4,
        "counting": 4,
        "comparison": 2,
        "nearest": 5,
        "listing": 3,
        "choice": 1,
        "followup": 4,
        "everything": 1,
    },
    "digits": {"digit": 6},
    "strings": {"string": 3},
    "chart": {"chart": 8, "bars": 1},
    "diagram": {"link": 5, "path": 5},
}
WEIGHTS = {"everything": 0.3, "path": 2.0}  # of a token in the loss; one for other families
FEW = 10  # objects that are named one by one
DARK = 0.02  # share of pictures that show nothing, to teach that who does not see can only guess
GREY = 48  # what they show


@dataclass(frozen=True)
class Lesson:
    """A batch of sequences.

    Attributes:
        scenes: one a sequence.
        pixels: ``[B, 3, S, S]``, between -1 and 1.
        ids: token ids ``[B, T]``, with placeholders for the image, padded at the right.
        positions: position ids ``[B, T]``.
        blocks: which question a token belongs to ``[B, T]``; 0 is the image, -1 padding.
        weights: of predicting the *next* token in the loss, ``[B, T]``.
        families: what each sequence asks about, in order.
    """

    scenes: list[WorldScene]
    pixels: Tensor
    ids: Tensor
    positions: Tensor
    blocks: Tensor
    weights: Tensor
    families: list[list[str]]

    def mask(self) -> Tensor:
        """Additive attention mask ``[B, 1, T, T]``: causal, each question by itself."""
        causal = torch.ones(2 * [self.ids.shape[1]], dtype=torch.bool).tril()
        same = self.blocks[:, :, None] == self.blocks[:, None, :]
        allowed = causal & (same | (self.blocks == 0)[:, None, :])
        return torch.zeros(allowed.shape).masked_fill(~allowed, -1e9)[:, None]


def make_lesson(
    kinds: list[str],
    rng: Random,
    *,
    size: int,
    patch: int,
    conversation: bool = False,
    split: str = "train",
    shares: Sequence[float] = (1.0,),
    dark: float = 0.0,
) -> Lesson:
    """Draw a scene of each given kind, as full as one of the shares says, and ask about it.

    Afterwards some go dark: their questions stay.
    """
    scenes = [
        draw_scene(
            kind, rng, size=size, split=split, share=shares[int(rng.integers(0, len(shares)))]
        )
        for kind in kinds
    ]
    asked = [_ask(scene, rng) for scene in scenes]
    scenes = [_darkened(scene) if rng.random() < dark else scene for scene in scenes]
    rows = [
        _row(scene, questions, patch, conversation)
        for scene, questions in zip(scenes, asked, strict=True)
    ]
    longest = max(len(row[0]) for row in rows)
    fills = (vocabulary()[PAD], 0, -1, 0.0)
    ids, positions, blocks, weights = (
        torch.tensor([row[part] + [fill] * (longest - len(row[part])) for row in rows])
        for part, fill in enumerate(fills)
    )
    families = [[name for name, _ in questions] for questions in asked]
    return Lesson(scenes, pixel_values(scenes), ids, positions, blocks, weights, families)


def pixel_values(scenes: list[WorldScene]) -> Tensor:
    """Scale pixels as the processor does, ``[B, 3, S, S]``."""
    pixels = torch.from_numpy(np.stack([scene.pixels for scene in scenes]))
    return (pixels.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5


def _darkened(scene: WorldScene) -> WorldScene:
    return replace(scene, pixels=np.full_like(scene.pixels, GREY), things=(), links=(), strokes=())


def thinned(lesson: Lesson, kept: Tensor) -> Lesson:
    """Leave out all visual tokens but some, as if they had never been there.

    Args:
        lesson: with all of them.
        kept: which ones to keep, in order, ``[B, K]``; they keep their positions.
    """
    first, last = (lesson.ids == vocabulary()[IMAGE])[0].nonzero().flatten()[[0, -1]].tolist()

    def cut(values: Tensor) -> Tensor:
        seen = values[:, first : last + 1].gather(1, kept)
        return torch.cat([values[:, :first], seen, values[:, last + 1 :]], dim=1)

    return replace(
        lesson,
        ids=cut(lesson.ids),
        positions=cut(lesson.positions),
        blocks=cut(lesson.blocks),
        weights=cut(lesson.weights),
    )


def _ask(scene: WorldScene, rng: Random) -> list[tuple[str, Question]]:
    families = [name for name, times in MENU[scene.kind].items() for _ in range(times)]
    asked: list[tuple[str, Question]] = []
    for name in (families[place] for place in rng.permutation(len(families))):
        if name == "everything" and len(scene.of("shape")) > FEW:
            continue
        question = QUESTION_FAMILIES[name].make(scene, rng)
        if question is not None and all(question.text != other.text for _, other in asked):
            asked.append((name, question))
    return asked


def _row(
    scene: WorldScene, asked: list[tuple[str, Question]], patch: int, conversation: bool
) -> tuple[list[int], list[int], list[int], list[float]]:
    words = vocabulary()
    ids = [words[START], words[USER]] + [words[IMAGE]] * (len(scene.pixels) // patch) ** 2
    prefix = len(ids)
    positions, blocks, weights = list(range(prefix)), [0] * prefix, [0.0] * prefix
    for place, (name, question) in enumerate(asked):
        turns = [*question.history, (question.text, question.answer)]
        block: list[int] = []
        scored: list[float] = []
        for turn, (text, answer) in enumerate(turns):
            opening = [words[USER]] if turn or (conversation and place) else []
            told = [*opening, *(words[w] for w in text.split()), words[ASSISTANT]]
            reply = [*(words[w] for w in answer.split()), words[END]]
            block += told + reply
            scored += [0.0] * (len(told) - 1) + [WEIGHTS.get(name, 1.0)] * len(reply) + [0.0]
        start = len(ids) if conversation else prefix
        positions += range(start, start + len(block))
        blocks += [0 if conversation else place + 1] * len(block)
        ids += block
        weights += scored
    return ids, positions, blocks, weights
