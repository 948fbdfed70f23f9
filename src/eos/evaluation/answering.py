"""Answering: generate the answers of the full model and of plans, in batches of questions.

Questions of similar length share a batch, so that little is padded; those of different numbers of
visual tokens never do, since `reduced` needs one number. Answers keep the numbers of questions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeAlias

from PIL import Image

from eos.engine.reduced import reads_vision, reduced
from eos.evaluation.tasks import Item
from eos.models.backbone import Backbone
from eos.models.processor import (
    Processor,
    continue_greedily,
    count_tokens,
    look_once,
    place_inputs,
    read_conversations,
)
from eos.space.plan import Plan

QuestionBatch: TypeAlias = dict[int, Item]  # by number
BLANK_COLOR = (48, 48, 48)  # of a blank image


@dataclass(frozen=True)
class Answerer:
    """A model and its processor, to answer questions with."""

    backbone: Backbone
    processor: Processor

    def visual_tokens(self, item: Item) -> int:
        """Count the visual tokens of a question's prompt."""
        inputs = read_conversations(self.processor, [item.messages])
        return int(self.backbone.visual_mask(inputs["input_ids"]).sum())

    def visual_size(self, item: Item) -> int:
        """A number that is equal for questions with equal numbers of visual tokens.

        It is that number where it depends on the images' sizes, otherwise the number of images,
        which needs no processor.
        """
        return self.visual_tokens(item) if self.backbone.family.any_count else _images(item)

    def answer_length(self, items: Collection[Item], *, spare: int = 1) -> int:
        """Count the tokens of the longest reference answer, and one to end it, or ``spare``.

        A wrong answer may be longer; one token more suffices to see that it is.
        """
        answers = (answer for item in items for answer in item.answers)
        return spare + max(count_tokens(self.processor, answer) for answer in answers)

    def answers(
        self, items: Collection[Item], runs: Mapping[str, Plan | None], *, max_new_tokens: int
    ) -> Iterator[tuple[str, list[str]]]:
        """Generate each run's answers to a batch in turn; the vision tower runs once for all."""
        if not runs:
            return
        model = self.backbone.model
        inputs = read_conversations(self.processor, [item.messages for item in items])
        inputs = place_inputs(model, inputs)
        seen = look_once(model, inputs)
        for run, plan in runs.items():
            # a plan whose scorer reads the vision tower needs it to run under the plan's hooks
            given = inputs if plan is not None and reads_vision(plan) else seen
            with nullcontext(model) if plan is None else reduced(self.backbone, plan) as running:
                texts = continue_greedily(
                    running, given, processor=self.processor, new_tokens=max_new_tokens
                )
            yield run, texts


def batches(
    items: Mapping[int, Item], size: int, *, visual_size: Callable[[Item], int]
) -> Iterator[QuestionBatch]:
    """Cut questions, by number, into batches of similar length and one ``visual_size`` each."""
    keys = [(visual_size(item), _words(item), number) for number, item in items.items()]
    for _, group in groupby(sorted(keys), key=lambda key: key[0]):
        numbers = [number for _, _, number in group]
        for start in range(0, len(numbers), size):
            yield {number: items[number] for number in numbers[start : start + size]}


def blanked(item: Item) -> Item:
    """Replace the images of a question by grey ones of the same size."""
    messages = [
        {**message, "content": [_blank(part) for part in message["content"]]}
        for message in item.messages
    ]
    return replace(item, messages=messages)


def _blank(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] != "image":
        return part
    return {**part, "image": Image.new("RGB", part["image"].size, BLANK_COLOR)}


def _images(item: Item) -> int:
    return sum(part["type"] == "image" for part in _parts(item))


def _words(item: Item) -> int:
    return sum(len(part["text"].split()) for part in _parts(item) if part["type"] == "text")


def _parts(item: Item) -> Iterator[dict[str, Any]]:
    return (part for message in item.messages for part in message["content"])
