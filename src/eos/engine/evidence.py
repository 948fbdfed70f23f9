"""Evidence: compute what a scorer needs from a layer's own attention, and nothing more."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eos.errors import BackboneError, PlanError
from eos.methods.registry import SCORERS
from eos.models.backbone import Backbone, LayerCall
from eos.models.hooks import ModelCall
from eos.models.vision import VisionTap
from eos.operator.scorers import Evidence, Rows, rope_gravity, text_raters
from eos.space.plan import Plan
from eos.space.step import needs
from eos.tokens import take


@dataclass(frozen=True)
class Prompt:
    """What a prompt consists of, all ``[B, T]`` in its full length.

    Attributes:
        visual: visual tokens.
        valid: tokens that are not padding.
        is_prompt: tokens of the prompt proper, not labelled or already generated answer tokens.
        raters: text tokens whose attention rates visual ones; None if no scorer needs them.
    """

    visual: Tensor
    valid: Tensor
    is_prompt: Tensor
    raters: Tensor | None = None

    def to(self, like: Tensor) -> "Prompt":
        """Move to the device of ``like``."""
        if self.visual.device == like.device:
            return self
        masks = (self.visual, self.valid, self.is_prompt)
        visual, valid, is_prompt = (mask.to(like.device) for mask in masks)
        raters = None if self.raters is None else self.raters.to(like.device)
        return Prompt(visual, valid, is_prompt, raters)

    @property
    def question(self) -> Tensor:
        """Mask of the prompt's text from the first image on, without the system prompt."""
        after = self.visual.long().cumsum(dim=1) > 0
        return after & ~self.visual & self.valid & self.is_prompt


def read_prompt(call: ModelCall, plan: Plan, backbone: Backbone, *, length: int) -> Prompt:
    """Check that a prompt, the first ``length`` tokens, can be reduced by this plan."""
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
    is_prompt = (places < length).expand_as(visual)
    if call.answer is not None:
        is_prompt = is_prompt & ~call.answer
    if call.padding is None:
        return Prompt(visual, torch.ones_like(visual), is_prompt)
    valid = call.padding[:, -visual.shape[1] :].bool()
    if not bool(valid[:, -1].all()):
        raise BackboneError(
            "expected a left-padded batch; found padding on the right. Set padding_side='left' on "
            "the tokenizer"
        )
    return Prompt(visual, valid, is_prompt)


def find_raters(embeddings: Tensor, prompt: Prompt) -> Tensor:
    """Pick the text raters once, from the embeddings that enter the decoder, ``[B, T]``."""
    visual = embeddings[prompt.visual].view(len(embeddings), -1, embeddings.shape[-1])
    rows, counted = listed(prompt.question)
    rates = text_raters(visual, take(embeddings, rows), counted=counted)
    return torch.zeros_like(prompt.visual).scatter(1, rows, rates)


@dataclass(frozen=True)
class Scene:
    """The inputs that evidence is computed from, at one step of a forward pass.

    Attributes:
        prompt: the full prompt.
        states: output of the layer that has just run, ``[B, T', D]``.
        slots: places of those T' tokens in the full prompt, ``[B, T']``.
        places: places of the N visual ones among the T', ``[B, N]``.
        layer: inputs of the layer whose attention is read; None before the decoder.
        vision: records the vision tower's inputs; None if no scorer needs it.
    """

    prompt: Prompt
    states: Tensor
    slots: Tensor
    places: Tensor
    layer: LayerCall | None
    vision: VisionTap | None = None


def evidence_for(backbone: Backbone, scene: Scene, *, score: str, kind: str, keep: int) -> Evidence:
    """Collect what the scorer ``score`` and the operator ``kind`` need, and nothing more."""
    evidence = Evidence(take(scene.states, scene.places), keep=keep)
    needed = needs(score, kind)
    if "vision" in needed:
        evidence = _with_vision(evidence, scene)
    if scene.layer is None:
        return evidence
    if SCORERS[score].rows != "none":
        rows, counted = _rows(SCORERS[score].rows, scene.prompt, scene.slots)
        attention = _columns(backbone.attention_rows(scene.layer, rows), scene.places)
        evidence = replace(evidence, attention=attention, rows=counted)
        if "gravity" in needed:
            cos, sin = (x.expand(len(rows), -1, -1) for x in scene.layer.rotary)
            evidence = replace(evidence, gravity=rope_gravity(cos, sin, rows, scene.places))
    if "keys" in needed:
        keys = backbone.keys(scene.layer)
        evidence = replace(evidence, keys=_at(keys, scene.places))
        if "text" in needed:
            question = scene.prompt.question.gather(1, scene.slots)
            norms = keys.abs().sum(dim=(1, 3)).masked_fill(~question, -torch.inf)
            normed = backbone.final_norm(scene.states)
            evidence = replace(evidence, text=(normed, norms, take(normed, scene.places)))
    return evidence


def _with_vision(evidence: Evidence, scene: Scene) -> Evidence:
    """Add evidence of the vision tower; several images of a sample are concatenated."""
    assert scene.vision is not None
    vision = scene.vision.read()
    batch, tokens = evidence.states.shape[:2]
    seen = vision.cls_attention.shape[0] * (vision.cls_attention.shape[-1] - 1)
    if (batch * tokens) % seen:
        raise BackboneError(
            f"expected one visual token a patch; found {tokens} tokens a sample of {batch} and "
            f"{seen} patches in all"
        )
    vision = vision.repeated(batch * tokens // seen)  # beams of one prompt share its images
    patches = vision.cls_attention[..., 1:]
    images = len(patches) // batch
    attention = patches.reshape(batch, images, *patches.shape[1:]).transpose(1, 2).flatten(2)
    return replace(evidence, cls_attention=attention, vision=vision if images == 1 else None)


def _rows(kind: Rows, prompt: Prompt, slots: Tensor) -> tuple[Tensor, Tensor]:
    """List the query rows a scorer needs, ``[B, R]``, padded; and which of them count."""
    if kind == "last":
        order = torch.arange(slots.shape[1], device=slots.device)
        last = (order * prompt.is_prompt.gather(1, slots)).amax(dim=1, keepdim=True)
        return last, torch.ones_like(last, dtype=torch.bool)
    mask = prompt.raters if kind == "raters" else prompt.question
    assert mask is not None
    return listed(mask.gather(1, slots))


def listed(mask: Tensor) -> tuple[Tensor, Tensor]:
    """List where a mask ``[B, T]`` is true, ``[B, R]`` padded to the longest, and which count."""
    most = max(1, int(mask.sum(dim=1).max()))
    rows = (~mask).long().argsort(dim=1, stable=True)[:, :most]
    return rows, mask.gather(1, rows)


def _columns(attention: Tensor, places: Tensor) -> Tensor:
    """Pick the visual keys of ``[B, H, R, T]``."""
    index = places[:, None, None].expand(-1, *attention.shape[1:3], -1)
    return attention.gather(3, index)


def _at(keys: Tensor, places: Tensor) -> Tensor:
    """Pick the visual rows of keys ``[B, G, T, E]``."""
    index = places[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[-1])
    return keys.gather(2, index)
