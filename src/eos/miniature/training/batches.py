"""Batches: images with many questions each, packed into sequences for training.

In most batches questions are independent: each attends to the image and itself alone, as at test
time, through a block mask and positions that start anew. The others are conversations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from eos.miniature.families import QUESTION_FAMILIES
from eos.miniature.language import ASSISTANT, END, IMAGE, PAD, START, USER, vocabulary
from eos.miniature.model import PATCH
from eos.miniature.questions import Question
from eos.miniature.scenes import Random, WorldScene, draw_scene

QUESTIONS_PER_IMAGE = {  # by the scene's kind: at most so many of each family
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
FAMILY_WEIGHTS = {"everything": 0.3, "path": 2.0}  # of a token in the loss; one for other families
MOST_LISTED = 10  # objects of a scene whose objects are all listed in an answer
BLANK_RATE = 0.02  # share of images that are plain grey: without evidence the model should guess
BLANK_LEVEL = 48  # their grey


@dataclass(frozen=True)
class TrainingBatch:
    """A batch of sequences.

    Attributes:
        scenes: one a sequence.
        pixels: ``[B, 3, S, S]``, between -1 and 1.
        ids: token ids ``[B, T]``, with placeholders for the image, padded at the right.
        positions: position ids ``[B, T]``.
        blocks: which question a token belongs to ``[B, T]``; 0 is the image, -1 padding.
        weights: of predicting the *next* token in the loss, ``[B, T]``.
        families: of each sequence's questions, in order.
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


def make_batch(
    kinds: list[str],
    rng: Random,
    *,
    size: int,
    conversation: bool = False,
    split: str = "train",
    shares: Sequence[float] = (1.0,),
    blank_rate: float = 0.0,
) -> TrainingBatch:
    """Draw a scene of each given kind, as full as one of the shares says, and its questions.

    Afterwards some images are replaced by plain grey: their questions stay.
    """
    scenes = [
        draw_scene(
            kind, rng, size=size, split=split, share=shares[int(rng.integers(0, len(shares)))]
        )
        for kind in kinds
    ]
    questions = [_draw_questions(scene, rng) for scene in scenes]
    scenes = [_blanked(scene) if rng.random() < blank_rate else scene for scene in scenes]
    rows = [_sequence(*pair, conversation) for pair in zip(scenes, questions, strict=True)]
    longest = max(len(row[0]) for row in rows)
    padding = (vocabulary()[PAD], 0, -1, 0.0)
    ids, positions, blocks, weights = (
        torch.tensor([row[part] + [fill] * (longest - len(row[part])) for row in rows])
        for part, fill in enumerate(padding)
    )
    families = [[family for family, _ in row] for row in questions]
    return TrainingBatch(scenes, pixel_values(scenes), ids, positions, blocks, weights, families)


def pixel_values(scenes: list[WorldScene]) -> Tensor:
    """Scale pixels as the processor does, ``[B, 3, S, S]``."""
    pixels = torch.from_numpy(np.stack([scene.pixels for scene in scenes]))
    return (pixels.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5


def select_visual_tokens(batch: TrainingBatch, kept: Tensor) -> TrainingBatch:
    """Remove all visual tokens but some from the sequences.

    Args:
        batch: with all of them.
        kept: which ones to keep, in order, ``[B, K]``; they keep their positions.
    """
    first, last = (batch.ids == vocabulary()[IMAGE])[0].nonzero().flatten()[[0, -1]].tolist()

    def select(values: Tensor) -> Tensor:
        visual = values[:, first : last + 1].gather(1, kept)
        return torch.cat([values[:, :first], visual, values[:, last + 1 :]], dim=1)

    return replace(
        batch,
        ids=select(batch.ids),
        positions=select(batch.positions),
        blocks=select(batch.blocks),
        weights=select(batch.weights),
    )


def _blanked(scene: WorldScene) -> WorldScene:
    pixels = np.full_like(scene.pixels, BLANK_LEVEL)
    return replace(scene, pixels=pixels, things=(), links=(), strokes=())


def _draw_questions(scene: WorldScene, rng: Random) -> list[tuple[str, Question]]:
    """Draw different questions about a scene, with their families, in random order."""
    counts = QUESTIONS_PER_IMAGE[scene.kind]
    families = [name for name, count in counts.items() for _ in range(count)]
    questions: list[tuple[str, Question]] = []
    for name in (families[place] for place in rng.permutation(len(families))):
        if name == "everything" and len(scene.of("shape")) > MOST_LISTED:
            continue
        question = QUESTION_FAMILIES[name].make(scene, rng)
        if question is not None and all(question.text != other.text for _, other in questions):
            questions.append((name, question))
    return questions


def _sequence(
    scene: WorldScene, questions: list[tuple[str, Question]], conversation: bool
) -> tuple[list[int], list[int], list[int], list[float]]:
    """Token ids, positions, blocks and loss weights of an image and its questions."""
    words = vocabulary()
    ids = [words[START], words[USER]] + [words[IMAGE]] * (len(scene.pixels) // PATCH) ** 2
    prefix = len(ids)
    positions, blocks, weights = list(range(prefix)), [0] * prefix, [0.0] * prefix
    for number, (family, question) in enumerate(questions):
        turns = [*question.history, (question.text, question.answer)]
        start = len(ids)
        for turn, (text, answer) in enumerate(turns):
            opening = [words[USER]] if turn or (conversation and number) else []
            prompt = [*opening, *(words[w] for w in text.split()), words[ASSISTANT]]
            reply = [*(words[w] for w in answer.split()), words[END]]
            ids += prompt + reply
            weights += [0.0] * (len(prompt) - 1)
            weights += [FAMILY_WEIGHTS.get(family, 1.0)] * len(reply) + [0.0]
        length, position = len(ids) - start, start if conversation else prefix
        positions += range(position, position + length)
        blocks += [0 if conversation else number + 1] * length
    return ids, positions, blocks, weights
