"""Evidence: compute what a scorer needs from a layer's own attention, and nothing more.

A layer is read once for the whole batch (`Reading`); each group of samples takes its visual tokens'
share of that.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from eos.engine.groups import Group
from eos.engine.prompt import Prompt, listed
from eos.engine.stages import Stage, at_stage
from eos.errors import BackboneError
from eos.methods.registry import SCORERS
from eos.models.backbone import Backbone, LayerCall
from eos.models.vision import VisionTap
from eos.operator.scorers import Evidence, Rows, rope_gravity
from eos.space.step import needs
from eos.tokens import Vision, take


@dataclass(frozen=True)
class Reading:
    """What a scorer and an operator need of a layer, for all T' tokens of a batch.

    Attributes:
        rows: the query rows, ``[B, R]``; None if no attention is needed.
        counted: which of them count, ``[B, R]``.
        attention: of those rows on all tokens, ``[B, H, R, T']``.
        rotary: cos and sin of all tokens, each ``[B, T', E]``.
        keys: of all tokens, ``[B, G, T', E]``.
        text: normed states of all tokens ``[B, T', D]`` and the L1 norms of their keys ``[B, T']``,
            -inf where a token is no text.
        vision: the vision tower's outputs, one row for each image.
    """

    rows: Tensor | None = None
    counted: Tensor | None = None
    attention: Tensor | None = None
    rotary: tuple[Tensor, Tensor] | None = None
    keys: Tensor | None = None
    text: tuple[Tensor, Tensor] | None = None
    vision: Vision | None = None


@dataclass
class StepContext:
    """The inputs that evidence is computed from, at one step of a forward pass.

    Attributes:
        backbone: the model.
        prompt: the full prompt.
        stage: the tokens that are left.
        layer: inputs of the layer that has just run; None before the decoder.
        ahead: inputs of the next layer, with the output of the last, ``[B, T', D]``, as states.
        vision: records the vision tower's inputs; None if no scorer needs it.
    """

    backbone: Backbone
    prompt: Prompt
    stage: Stage
    layer: LayerCall | None
    ahead: LayerCall
    vision: VisionTap | None = None
    _known: dict[str, Reading] = field(default_factory=dict, init=False)

    def reading(self, score: str, *, kind: str) -> Reading:
        """Read the layer for the scorer ``score`` and the operator ``kind``, once."""
        if score not in self._known:
            layer = self.layer
            if SCORERS[score].ahead:
                ahead = at_stage(self.backbone, self.ahead, self.stage)
                layer = replace(ahead, weights=self.stage.weights)
            self._known[score] = _read(self, layer, score=score, kind=kind)
        return self._known[score]


def evidence_of(
    context: StepContext, group: Group, *, places: Tensor, score: str, kind: str, keep: int
) -> Evidence:
    """Collect what the scorer ``score`` and the operator ``kind`` need of a group's tokens.

    ``places`` ``[b, N]`` are those of its visual tokens among the T' that are left.
    """
    reading, of = context.reading(score, kind=kind), group.of
    evidence = Evidence(take(of(context.ahead.states), places), keep=keep)
    if reading.vision is not None:
        vision = _vision_of(reading.vision, context.prompt.counts, group, left=places.shape[1])
        evidence = _with_vision(evidence, vision)
    if reading.attention is not None and reading.rows is not None:
        assert reading.counted is not None
        attention = of(reading.attention).take_along_dim(places[:, None, None], dim=3)
        evidence = replace(evidence, attention=attention, rows=of(reading.counted))
        if reading.rotary is not None:
            cos, sin = (of(x) for x in reading.rotary)
            gravity = rope_gravity(cos, sin, of(reading.rows), places)
            evidence = replace(evidence, gravity=gravity)
    if reading.keys is not None:
        keys = of(reading.keys).take_along_dim(places[:, None, :, None], dim=2)
        evidence = replace(evidence, keys=keys)
    if reading.text is not None:
        normed, norms = (of(x) for x in reading.text)
        evidence = replace(evidence, text=(normed, norms, take(normed, places)))
    return evidence


def _read(context: StepContext, layer: LayerCall | None, *, score: str, kind: str) -> Reading:
    needed, reading, backbone = needs(score, kind), Reading(), context.backbone
    if "vision" in needed:
        assert context.vision is not None
        reading = replace(reading, vision=context.vision.read())
    if layer is None:
        return reading
    if SCORERS[score].rows != "none":
        rows, counted = _rows(SCORERS[score].rows, context.prompt, context.stage)
        attention = backbone.attention_rows(layer, rows)
        reading = replace(reading, rows=rows, counted=counted, attention=attention)
        if "gravity" in needed:
            cos, sin = (x.expand(len(rows), -1, -1) for x in layer.rotary)
            reading = replace(reading, rotary=(cos, sin))
    if "keys" in needed:
        keys, states = backbone.keys(layer), context.ahead.states
        reading = replace(reading, keys=keys)
        if "text" in needed:
            question = context.prompt.question.gather(1, context.stage.slots)
            norms = keys.abs().sum(dim=(1, 3)).masked_fill(~question, -torch.inf)
            reading = replace(reading, text=(backbone.final_norm(states), norms))
    return reading


def _vision_of(vision: Vision, counts: tuple[int, ...], group: Group, *, left: int) -> Vision:
    """Select the images of a group's samples; beams of one prompt share its images."""
    images, patches = vision.cls_attention.shape[0], vision.cls_attention.shape[-1] - 1
    if sum(counts) % (images * patches) or left != group.tokens:
        raise BackboneError(
            f"expected one visual token a patch; found {left} tokens in a sample, {sum(counts)} "
            f"in all, and {images * patches} patches in all"
        )
    beams = sum(counts) // (images * patches)
    if beams == 1 and group.members is None:
        return vision
    rows: list[int] = []
    start = 0
    for sample, count in enumerate(counts):
        if group.members is None or sample in group.members:
            rows += range(start, start + count // patches)
        start += count // patches if sample % beams == beams - 1 else 0
    return vision.at(torch.tensor(rows, device=vision.states.device))


def _with_vision(evidence: Evidence, vision: Vision) -> Evidence:
    """Add evidence of the vision tower; several images of a sample are concatenated."""
    batch, patches = len(evidence.states), vision.cls_attention[..., 1:]
    images = len(patches) // batch
    attention = patches.reshape(batch, images, *patches.shape[1:]).transpose(1, 2).flatten(2)
    return replace(evidence, cls_attention=attention, vision=vision if images == 1 else None)


def _rows(kind: Rows, prompt: Prompt, stage: Stage) -> tuple[Tensor, Tensor]:
    """List the query rows a scorer needs, ``[B, R]``, padded; and which of them count."""
    slots = stage.slots
    if kind == "last":
        order = torch.arange(slots.shape[1], device=slots.device)
        is_prompt = prompt.is_prompt.gather(1, slots)
        if stage.filler is not None:
            is_prompt = is_prompt & ~stage.filler
        last = (order * is_prompt).amax(dim=1, keepdim=True)
        return last, torch.ones_like(last, dtype=torch.bool)
    mask = prompt.raters if kind == "raters" else prompt.question
    assert mask is not None
    return listed(mask.gather(1, slots))
