"""Answering: generate the answers of the full model and of plans, in batches of questions.

Questions of similar length and images of similar size share a batch, so that little is padded.
Answers keep the numbers of questions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from PIL import Image

from eos.engine.reduced import reduced
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
        """A number that grows with a question's visual tokens, without encoding its images.

        It is the images' area where their tokens depend on it, otherwise how many there are.
        """
        images = [part["image"] for part in _parts(item) if part["type"] == "image"]
        if not self.backbone.family.any_count:
            return len(images)
        return sum(image.width * image.height for image in images)

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
            with nullcontext(model) if plan is None else reduced(self.backbone, plan) as running:
                texts = continue_greedily(
                    running, seen, processor=self.processor, new_tokens=max_new_tokens
                )
            yield run, texts


def batches(
    items: Mapping[int, Item], size: int, *, visual_size: Callable[[Item], int]
) -> Iterator[QuestionBatch]:
    """Cut questions, by number, into batches of similar ``visual_size`` and length."""
    keys = sorted((visual_size(item), _words(item), number) for number, item in items.items())
    numbers = [number for _, _, number in keys]
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


def _words(item: Item) -> int:
    return sum(len(part["text"].split()) for part in _parts(item) if part["type"] == "text")


def _parts(item: Item) -> Iterator[dict[str, Any]]:
    return (part for message in item.messages for part in message["content"])
