"""Evidence: collect what a scorer needs from a layer's own attention, and nothing more."""

from dataclasses import dataclass

import torch
from torch import Tensor

from eos.backbones.backbone import Backbone, LayerCall
from eos.backbones.hooks import ModelCall
from eos.errors import BackboneError, PlanError
from eos.plan import Plan
from eos.reduce.score import SCORERS, Evidence, Rows, text_raters
from eos.tokens import take


@dataclass(frozen=True)
class Prompt:
    """What a prompt consists of, all ``[B, T]`` in its full length.

    Attributes:
        visual: visual tokens.
        valid: tokens that are not padding.
        asked: tokens of the prompt proper, without an answer that is being taught or continued.
        raters: text tokens worth asking, if somebody needs them.
    """

    visual: Tensor
    valid: Tensor
    asked: Tensor
    raters: Tensor | None = None

    @property
    def question(self) -> Tensor:
        """The text from the first image on: what is asked, without the system prompt."""
        after = self.visual.long().cumsum(dim=1) > 0
        return after & ~self.visual & self.valid & self.asked


def read_prompt(call: ModelCall, plan: Plan, backbone: Backbone, *, asked: int) -> Prompt:
    """Check that a prompt can be reduced by this plan; its first ``asked`` tokens count."""
    visual = call.visual
    assert visual is not None
    counts = visual.sum(dim=1)
    tokens = int(counts[0])
    if bool((counts != tokens).any()):
        raise BackboneError(
            "expected the same number of visual tokens in every sample of a batch; found "
            f"{counts.tolist()}. Run samples of different numbers in separate batches"
        )
    if tokens % plan.visual_tokens and not backbone.family.any_count:
        raise PlanError(
            f"expected a plan for the {tokens} visual tokens of this prompt; found one for "
            f"{plan.visual_tokens} an image"
        )
    places = torch.arange(visual.shape[1], device=visual.device)
    asking = (places < asked).expand_as(visual)
    if call.answer is not None:
        asking = asking & ~call.answer
    if call.padding is None:
        return Prompt(visual, torch.ones_like(visual), asking)
    valid = call.padding[:, -visual.shape[1] :].bool()
    if not bool(valid[:, -1].all()):
        raise BackboneError(
            "expected a left-padded batch; found padding on the right. Set padding_side='left' on "
            "the tokenizer"
        )
    return Prompt(visual, valid, asking)


def find_raters(embeddings: Tensor, prompt: Prompt) -> Tensor:
    """Pick the text raters once, from the embeddings that enter the decoder, ``[B, T]``."""
    visual = embeddings[prompt.visual].view(len(embeddings), -1, embeddings.shape[-1])
    return text_raters(visual, embeddings, counts=prompt.question)


def evidence_for(
    backbone: Backbone,
    score: str,
    *,
    states: Tensor,
    layer: LayerCall | None,
    prompt: Prompt,
    slots: Tensor,
    places: Tensor,
) -> Evidence:
    """Collect the evidence of one scorer after a layer.

    Args:
        backbone: the model.
        score: the scorer's name.
        states: what left the layer, ``[B, T', D]``.
        layer: the inputs of that layer; None before the decoder.
        prompt: the full prompt.
        slots: places of the T' tokens in the full prompt, ``[B, T']``.
        places: places of the N visual ones among the T', ``[B, N]``.
    """
    visual = take(states, places)
    wanted = SCORERS[score].rows
    if layer is None:
        return Evidence(visual)
    if wanted == "none":
        keys = backbone.keys(layer)
        return Evidence(visual, keys=_at(keys, places))
    rows, counted = _rows(wanted, prompt, slots)
    attention = backbone.attention_rows(layer, rows)
    return Evidence(visual, attention=_columns(attention, places), rows=counted)


def _rows(wanted: Rows, prompt: Prompt, slots: Tensor) -> tuple[Tensor, Tensor]:
    """List the query rows to ask, ``[B, R]``, padded to the longest; and which of them count."""
    if wanted == "last":
        order = torch.arange(slots.shape[1], device=slots.device)
        last = (order * prompt.asked.gather(1, slots)).amax(dim=1, keepdim=True)
        return last, torch.ones_like(last, dtype=torch.bool)
    asked = prompt.raters if wanted == "raters" else prompt.question
    assert asked is not None
    asked = asked.gather(1, slots)
    most = max(1, int(asked.sum(dim=1).max()))
    rows = (~asked).long().argsort(dim=1, stable=True)[:, :most]
    return rows, asked.gather(1, rows)


def _columns(attention: Tensor, places: Tensor) -> Tensor:
    """Pick the visual keys of ``[B, H, R, T]``."""
    index = places[:, None, None].expand(-1, *attention.shape[1:3], -1)
    return attention.gather(3, index)


def _at(keys: Tensor, places: Tensor) -> Tensor:
    """Pick the visual rows of keys ``[B, G, T, E]``."""
    index = places[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[-1])
    return keys.gather(2, index)
