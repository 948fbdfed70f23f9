"""Prompt: what the tokens of a prompt are, and whether a plan can reduce them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from eos.engine.groups import Group
from eos.errors import BackboneError, PlanError
from eos.models.backbone import Backbone
from eos.models.hooks import ModelCall
from eos.operator.scorers import text_raters
from eos.space.plan import Plan
from eos.tokens import take


@dataclass(frozen=True)
class Prompt:
    """What a prompt consists of, all ``[B, T]`` in its full length.

    Attributes:
        visual: visual tokens.
        valid: tokens that are not padding.
        is_prompt: tokens of the prompt proper, not labelled or already generated answer tokens.
        counts: visual tokens of each sample.
        raters: text tokens whose attention rates visual ones; None if no scorer needs them.
    """

    visual: Tensor
    valid: Tensor
    is_prompt: Tensor
    counts: tuple[int, ...]
    raters: Tensor | None = None

    def to(self, like: Tensor) -> "Prompt":
        """Move to the device of ``like``."""
        if self.visual.device == like.device:
            return self
        masks = (self.visual, self.valid, self.is_prompt)
        visual, valid, is_prompt = (mask.to(like.device) for mask in masks)
        raters = None if self.raters is None else self.raters.to(like.device)
        return Prompt(visual, valid, is_prompt, self.counts, raters)

    @property
    def tokens(self) -> int:
        """Length of the padded prompt."""
        return self.visual.shape[1]

    @property
    def ragged(self) -> bool:
        """Whether samples differ in their numbers of visual tokens."""
        return len(set(self.counts)) > 1

    @property
    def question(self) -> Tensor:
        """Mask of the prompt's text from the first image on, without the system prompt."""
        after = self.visual.long().cumsum(dim=1) > 0
        return after & ~self.visual & self.valid & self.is_prompt


def read_prompt(call: ModelCall, plan: Plan, backbone: Backbone, *, length: int) -> Prompt:
    """Check that a prompt, the first ``length`` tokens, can be reduced by this plan."""
    visual = call.visual
    assert visual is not None
    counts = tuple(visual.sum(dim=1).tolist())
    odd = [count for count in counts if count % plan.visual_tokens]
    if odd and not backbone.family.any_count:
        raise PlanError(
            f"expected a plan for the {odd[0]} visual tokens of this prompt; found one for "
            f"{plan.visual_tokens} an image"
        )
    places = torch.arange(visual.shape[1], device=visual.device)
    is_prompt = (places < length).expand_as(visual)
    if call.answer is not None:
        is_prompt = is_prompt & ~call.answer
    if call.padding is None:
        return Prompt(visual, torch.ones_like(visual), is_prompt, counts)
    valid = call.padding[:, -visual.shape[1] :].bool()
    if not bool(valid[:, -1].all()):
        raise BackboneError(
            "expected a left-padded batch; found padding on the right. Set padding_side='left' on "
            "the tokenizer"
        )
    return Prompt(visual, valid, is_prompt, counts)


def find_raters(embeddings: Tensor, prompt: Prompt, groups: Sequence[Group]) -> Tensor:
    """Pick the text raters once, from the embeddings that enter the decoder, ``[B, T]``."""
    raters, width = torch.zeros_like(prompt.visual), embeddings.shape[-1]
    for group in groups:
        states, question = group.of(embeddings), group.of(prompt.question)
        visual = states[group.of(prompt.visual)].view(len(states), -1, width)
        rows, counted = listed(question)
        rates = text_raters(visual, take(states, rows), counted=counted)
        raters = group.put(raters, torch.zeros_like(question).scatter(1, rows, rates))
    return raters


def listed(mask: Tensor) -> tuple[Tensor, Tensor]:
    """List where a mask ``[B, T]`` is true, ``[B, R]`` padded to the longest, and which count."""
    most = max(1, int(mask.sum(dim=1).max()))
    rows = (~mask).long().argsort(dim=1, stable=True)[:, :most]
    return rows, mask.gather(1, rows)
