"""World: numbered examples of every family, the same on every machine.

An example follows from its split, a seed, its family and its number alone. Splits never share a
random stream, and training never shows a handwritten digit that another split shows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from eos.errors import DataError
from eos.miniature.families import QUESTION_FAMILIES
from eos.miniature.model import SIZE
from eos.miniature.questions import Question
from eos.miniature.scenes import OBJECT_SHARES, draw_scene

SPLITS = {"train": 0, "validation": 1, "test": 2}  # first number of every random stream
EVALUATED = tuple(name for name, family in QUESTION_FAMILIES.items() if family.group != "training")


@dataclass(frozen=True)
class Example:
    """An image with one question.

    Attributes:
        id: family, split, seed and number.
        family: name of the family.
        image: 96 by 96 pixels.
        question: its text, answer and chance level.
    """

    id: str
    family: str
    image: Image.Image
    question: Question

    def messages(self, *, answered: bool = False) -> list[dict[str, Any]]:
        """Write the conversation as chat templates read it, with the answer or up to it."""
        turns = [*self.question.history, (self.question.text, self.question.answer)]
        messages: list[dict[str, Any]] = []
        for text, answer in turns:
            messages.append({"role": "user", "content": [{"type": "text", "text": text}]})
            messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        messages[0]["content"].insert(0, {"type": "image", "image": self.image})
        return messages if answered else messages[:-1]


def example(split: str, family: str, number: int, *, seed: int = 0) -> Example:
    """Make one example."""
    if split not in SPLITS or family not in QUESTION_FAMILIES:
        raise DataError(
            f"expected a split among {', '.join(SPLITS)} and a family among "
            f"{', '.join(QUESTION_FAMILIES)}; found {split!r} and {family!r}"
        )
    place = tuple(QUESTION_FAMILIES).index(family)
    rng = np.random.default_rng([SPLITS[split], 1, seed, place, number])
    share = OBJECT_SHARES[int(rng.integers(0, len(OBJECT_SHARES)))]
    question = None
    while question is None:
        scene = draw_scene(QUESTION_FAMILIES[family].kind, rng, size=SIZE, split=split, share=share)
        question = QUESTION_FAMILIES[family].make(scene, rng)
    image = Image.fromarray(scene.pixels)
    return Example(f"{family}/{split}/{seed}/{number}", family, image, question)


def examples(split: str, family: str, *, count: int, seed: int = 0) -> Iterator[Example]:
    """Make the first ``count`` examples of a family."""
    for number in range(count):
        yield example(split, family, number, seed=seed)
