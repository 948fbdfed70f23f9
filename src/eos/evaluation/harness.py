"""Harness: answer what an evaluation harness asks, by the full model or under a plan.

Conversations, stop strings, batches and losses are here; `eos.evaluation.lmms_model` connects them
to lmms-eval, the only file that needs its package.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from eos.data.batches import Reader
from eos.data.samples import Message, Sample, load_image
from eos.data.sources import PLACEHOLDER
from eos.engine.search_pass import labelled_pass
from eos.errors import ConfigError, DataError
from eos.evaluation.answering import Answerer, batches
from eos.evaluation.tasks import Item
from eos.models.backbone import Backbone
from eos.models.plain import model_sizes
from eos.models.processor import place_batch
from eos.searching.objective import sample_cross_entropy
from eos.space.plan import Plan
from eos.tokens import IGNORED

NAME = "eos"  # of the model in lmms-eval
MAX_NEW_TOKENS = 1024  # of a task that sets no limit, as in lmms-eval's own models
RUN = "harness"


@dataclass(frozen=True)
class Limits:
    """Where an answer ends: after so many tokens, or before one of these strings."""

    max_new_tokens: int = MAX_NEW_TOKENS
    until: tuple[str, ...] = ()

    def cut(self, text: str) -> str:
        """Drop the first stop string and what follows it.

        >>> Limits(until=("###", "stop")).cut("yes stop no ###")
        'yes '
        """
        return text[: min([len(text), *(text.find(x) for x in self.until if x in text)])]


@dataclass(frozen=True)
class Request:
    """A conversation to be answered, and where the answer ends."""

    messages: list[Message]
    limits: Limits = Limits()


@dataclass(frozen=True)
class Conversations:
    """Conversations in memory, as a source of samples."""

    messages: Sequence[list[Message]]

    def __len__(self) -> int:
        return len(self.messages)

    def describe(self) -> str:
        """Describe the source."""
        return f"{len(self)} conversations"

    def name(self, index: int) -> str:
        """Name a sample."""
        return f"request {index}"

    def sample(self, index: int) -> Sample:
        """Make a sample."""
        return Sample(self.name(index), self.messages[index])


@dataclass(frozen=True)
class Responder:
    """Answers requests in batches, padded at the left.

    Attributes:
        answerer: the model and its processor.
        plan: to run it under; None for the full model.
        batch_size: requests at once.
    """

    answerer: Answerer
    plan: Plan | None
    batch_size: int

    def texts(self, requests: Sequence[Request]) -> Iterator[tuple[int, str]]:
        """Give the number and the answer of each request, batch by batch."""
        for limits in dict.fromkeys(request.limits for request in requests):
            own = {n: x.messages for n, x in enumerate(requests) if x.limits == limits}
            for batch in self._batches(own):
                found = self.answerer.answers(
                    batch.values(), {RUN: self.plan}, max_new_tokens=limits.max_new_tokens
                )
                for _, texts in found:
                    yield from zip(batch, map(limits.cut, texts), strict=True)

    @torch.no_grad()
    def losses(
        self, conversations: Sequence[list[Message]]
    ) -> Iterator[tuple[int, tuple[float, bool]]]:
        """Give each conversation's number, its last answer's loss, and whether it is greedy.

        The loss is the negative log-likelihood, a mean over the answer's tokens.
        """
        backbone = self.answerer.backbone
        reader = Reader(Conversations(conversations), self.answerer.processor, "last")
        for batch in self._batches(dict(enumerate(conversations))):
            read = reader.inputs([reader.read(number) for number in batch])
            inputs, labels = place_batch(backbone.model, read)
            plan = self.plan or _without_steps(backbone)
            output = labelled_pass(backbone, plan, inputs=inputs, labels=labels)
            assert output.logits is not None
            assert output.targets is not None
            hits = (output.logits.argmax(-1) == output.targets) | (output.targets == IGNORED)
            losses, greedy = sample_cross_entropy(output).tolist(), hits.all(dim=1).tolist()
            yield from zip(batch, zip(losses, greedy, strict=True), strict=True)

    def _batches(self, messages: Mapping[int, list[Message]]) -> Iterator[dict[int, Item]]:
        items = {number: Item(x, (), None, str(number)) for number, x in messages.items()}
        return batches(items, self.batch_size, visual_size=self.answerer.visual_size)


def read_limits(options: Mapping[str, Any]) -> Limits:
    """Read a task's generation options; all but greedy decoding is refused.

    >>> read_limits({"max_new_tokens": 16, "until": ["."], "temperature": 0, "top_p": 1.0})
    Limits(max_new_tokens=16, until=('.',))
    """
    beams, warmth = options.get("num_beams") or 1, options.get("temperature") or 0
    if beams > 1 or (options.get("do_sample", True) and warmth > 0):
        raise ConfigError(
            "expected a task that decodes greedily; found "
            f"temperature {warmth} and {beams} beams. Set --gen_kwargs temperature=0,num_beams=1"
        )
    until = options.get("until") or ()
    stops = (until,) if isinstance(until, str) else tuple(until)
    return Limits(int(options.get("max_new_tokens") or MAX_NEW_TOKENS), stops)


def user_turn(text: str, images: Sequence[object], *, where: str) -> list[Message]:
    """Write a question about images, shown first, as a conversation."""
    shown = [{"type": "image", "url": image} for image in images]
    parts = [*shown, {"type": "text", "text": text}]
    return read_messages([{"role": "user", "content": parts}], where=where)


def read_messages(messages: Sequence[Mapping[str, Any]], *, where: str) -> list[Message]:
    """Read lmms-eval's messages as chat templates do: images decoded, no marks of them in text."""
    return [
        {"role": message["role"], "content": [_part(x, where) for x in message["content"]]}
        for message in messages
    ]


def _part(part: Mapping[str, Any], where: str) -> Message:
    if part["type"] == "text":
        return {"type": "text", "text": str(part["text"]).replace(PLACEHOLDER, "")}
    if part["type"] == "image" and not isinstance(part["url"], str):
        return {"type": "image", "image": load_image(part["url"], where=where)}
    raise DataError(
        f"{where}: expected text and images, which plans are made for; found a "
        f"{'file or address' if part['type'] == 'image' else part['type']}. Choose image tasks"
    )


def _without_steps(backbone: Backbone) -> Plan:
    count = model_sizes(backbone)["visual_tokens"]
    return Plan(visual_tokens=count, num_layers=backbone.num_layers, steps=())


def manifest() -> Any:
    """Name the model's classes to lmms-eval, which calls this by its entry point."""
    from lmms_eval.models.registry_v2 import (  # type: ignore[import-not-found]  # an optional package
        ModelManifest,
    )

    home = "eos.evaluation.lmms_model"
    return ModelManifest(
        model_id=NAME, chat_class_path=f"{home}.EosChat", simple_class_path=f"{home}.EosSimple"
    )
