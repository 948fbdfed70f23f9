"""Answering: questions in, words out, for the full model and for plans.

Questions of similar length share a batch, so that little is padded; who asked in which order is
kept by their numbers.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
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

Batch: TypeAlias = dict[int, Item]  # by number
GREY = (48, 48, 48)  # of a blank image


@dataclass(frozen=True)
class Desk:
    """A model and its processor: where questions are answered."""

    backbone: Backbone
    processor: Processor

    def visual_tokens(self, item: Item) -> int:
        """Count the visual tokens of a question's prompt."""
        inputs = read_conversations(self.processor, [item.messages])
        return int(self.backbone.visual_mask(inputs["input_ids"]).sum())

    def room_for(self, items: Collection[Item]) -> int:
        """Say how many tokens the longest answer takes, and one to end it.

        A wrong answer may be longer; with this much room it is seen to be.
        """
        return 1 + max(count_tokens(self.processor, item.answer) for item in items)

    def answers(
        self, items: Collection[Item], runs: Mapping[str, Plan | None], *, new_tokens: int
    ) -> Iterator[tuple[str, list[str]]]:
        """Let each run answer a batch in turn; its tower looks at the images once for all."""
        if not runs:
            return
        model = self.backbone.model
        inputs = read_conversations(self.processor, [item.messages for item in items])
        inputs = place_inputs(model, inputs)
        seen = look_once(model, inputs)
        for run, plan in runs.items():
            # a plan that asks the tower must be there when it looks
            given = inputs if plan is not None and reads_vision(plan) else seen
            with nullcontext(model) if plan is None else reduced(self.backbone, plan) as running:
                texts = continue_greedily(
                    running, given, processor=self.processor, new_tokens=new_tokens
                )
            yield run, texts


def batches(items: Sequence[Item], size: int) -> Iterator[Batch]:
    """Cut questions into batches of similar length."""
    ordered = sorted(enumerate(items), key=lambda pair: (_words(pair[1]), pair[0]))
    for start in range(0, len(ordered), size):
        yield dict(ordered[start : start + size])


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
    return {**part, "image": Image.new("RGB", part["image"].size, GREY)}


def _words(item: Item) -> int:
    parts = (part for message in item.messages for part in message["content"])
    return sum(len(part["text"].split()) for part in parts if part["type"] == "text")
