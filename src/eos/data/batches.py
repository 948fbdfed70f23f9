"""Batches: conversations as a model's inputs, padded at the left, with labels on the answers.

Works with any processor that has a chat template. The conversation is rendered with and without
each answer; the difference at its end are the answer's tokens. Their positions are counted from the
right, after all images, so that they do not depend on the number of visual tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from eos.data.order import choices
from eos.data.samples import Sample, Skipped, Source, UnusableError
from eos.errors import DataError
from eos.models.backbone import Backbone
from eos.models.processor import Processor
from eos.tokens import IGNORED

Taught: TypeAlias = Literal["all", "last"]

MOST_UNUSABLE = 100  # samples in a row after which a source is refused
MERGED = 2  # tokens before an answer that may be written together with its first


@dataclass(frozen=True)
class Answered:
    """A sample and where its answers are.

    Attributes:
        index: its number in the source.
        sample: itself.
        spans: begin and end of each answer in tokens from the right end, begin included.
        tail: the tokens from the begin of the first answer.
    """

    index: int
    sample: Sample
    spans: tuple[tuple[int, int], ...]
    tail: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """The samples of one process in one step.

    Attributes:
        answered: the samples.
        skipped: those that could not be used on the way.
        at_once: how many samples go through the model at once.
    """

    answered: tuple[Answered, ...]
    skipped: tuple[Skipped, ...] = ()
    at_once: int = 0

    @property
    def tried(self) -> int:
        """Count the samples that were read, usable or not."""
        return len(self.answered) + len(self.skipped)

    def pieces(self) -> Iterator[tuple[Answered, ...]]:
        """Cut into what goes through the model at once."""
        rest = iter(self.answered)
        while piece := tuple(islice(rest, self.at_once or len(self.answered))):
            yield piece


@dataclass(frozen=True)
class Reader:
    """Reads samples of a source for one model.

    Attributes:
        source: of samples.
        processor: of the model.
        taught: which answers are, ``all`` of a conversation or the ``last``.
        max_text_tokens: a longer conversation is not used; images not counted.
    """

    source: Source
    processor: Processor
    taught: Taught = "all"
    max_text_tokens: int = 2048

    def read(self, index: int) -> Answered:
        """Make a sample and find its answers, or raise `UnusableError`."""
        sample = self.source.sample(index)
        if not any(part["type"] == "image" for m in sample.messages for part in m["content"]):
            raise UnusableError(f"{sample.id}: expected an image, found none")
        whole = self._tokens(sample.messages, prompt=False)
        if len(whole) > self.max_text_tokens:
            raise UnusableError(
                f"{sample.id}: expected at most {self.max_text_tokens} text tokens, found "
                f"{len(whole)}"
            )
        spans = tuple(self._spans(sample, whole))
        return Answered(index, sample, spans, tuple(whole[len(whole) - spans[0][0] :]))

    def batch(
        self, step: int, *, seed: int, size: int, slots: Iterable[int], at_once: int = 0
    ) -> Batch:
        """Read some slots of a step's batch of ``size``; unusable samples are replaced."""
        answered: list[Answered] = []
        skipped: list[Skipped] = []
        for slot in slots:
            candidates = choices(len(self.source), seed=seed, step=step, slot=slot, batch=size)
            found = next(self._usable(islice(candidates, MOST_UNUSABLE), skipped), None)
            if found is None:
                raise DataError(
                    f"expected usable samples in {self.source.describe()}; found {MOST_UNUSABLE} "
                    f"in a row that are not, such as {skipped[-1].reason}"
                )
            answered.append(found)
        return Batch(tuple(answered), tuple(skipped), at_once)

    def first(self, count: int, *, at_once: int) -> Batch:
        """Read the first ``count`` usable samples; all if there are fewer."""
        skipped: list[Skipped] = []
        answered = tuple(islice(self._usable(range(len(self.source)), skipped), count))
        if not answered:
            raise DataError(f"expected usable samples in {self.source.describe()}, found none")
        return Batch(answered, tuple(skipped), at_once)

    def visual_tokens(self, backbone: Backbone, batch: Batch) -> int:
        """Count the visual tokens of a batch's first sample."""
        inputs, _ = self.inputs(batch.answered[:1])
        return int(backbone.visual_mask(inputs["input_ids"]).sum())

    def inputs(self, piece: Sequence[Answered]) -> tuple[dict[str, Any], Tensor]:
        """Encode samples: the model's inputs, and labels ``[B, T]`` with -100 but on answers."""
        encoded: Any = self.processor.apply_chat_template(
            [answered.sample.messages for answered in piece],
            add_generation_prompt=False,
            tokenize=True,
            return_dict=True,
            processor_kwargs={"padding": True, "padding_side": "left", "return_tensors": "pt"},
        )
        inputs: dict[str, Any] = dict(encoded)
        ids = inputs["input_ids"]
        labels = torch.full_like(ids, IGNORED)
        for row, answered in enumerate(piece):
            if tuple(ids[row, ids.shape[1] - len(answered.tail) :].tolist()) != answered.tail:
                raise DataError(
                    f"{answered.sample.id}: expected the answers' tokens at the end of the prompt; "
                    "found others. With images after the first answer, teach the last one only "
                    "(answers: last)"
                )
            for begin, end in answered.spans:
                where = slice(ids.shape[1] - begin, ids.shape[1] - end)
                labels[row, where] = ids[row, where]
        return inputs, labels

    def _usable(self, indices: Iterable[int], skipped: list[Skipped]) -> Iterator[Answered]:
        """Read samples one by one; those that cannot be used are added to ``skipped``."""
        for index in indices:
            try:
                yield self.read(index)
            except UnusableError as failure:
                skipped.append(Skipped(self.source.name(index), str(failure)))

    def _spans(self, sample: Sample, whole: list[int]) -> Iterator[tuple[int, int]]:
        """Find each taught answer, in tokens from the right end."""
        places = [i for i, message in enumerate(sample.messages) if message["role"] == "assistant"]
        for place in places if self.taught == "all" else places[-1:]:
            if not any(part.get("text", "").strip() for part in sample.messages[place]["content"]):
                raise UnusableError(f"{sample.id}: expected an answer, found an empty one")
            before = self._tokens(sample.messages[:place], prompt=True)
            after = self._tokens(sample.messages[: place + 1], prompt=False)
            begin, end = _shared(before, whole), _shared(after, whole)
            if begin < len(before) - MERGED or end < len(after) - MERGED:
                raise DataError(
                    f"{sample.id}: expected a chat template that writes earlier turns the same "
                    "whatever follows; found one that does not. Teach the last answer only "
                    "(answers: last), or set another chat_template"
                )
            while end > begin and not self.processor.tokenizer.decode([whole[end - 1]]).strip():
                end -= 1  # a template's blank or line break after an answer is not its text
            if end <= begin:
                raise UnusableError(f"{sample.id}: expected an answer, found no token of one")
            yield len(whole) - begin, len(whole) - end
        if not places:
            raise UnusableError(f"{sample.id}: expected an answer, found none")

    def _tokens(self, messages: Sequence[dict[str, Any]], *, prompt: bool) -> list[int]:
        """Tokenise a rendered conversation, each image as the one mark a template writes."""
        text = self.processor.apply_chat_template(
            [*messages], add_generation_prompt=prompt, tokenize=False
        )
        encoded = self.processor.tokenizer(text, add_special_tokens=False)
        return list(encoded["input_ids"])


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Count the tokens with which two begin alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
