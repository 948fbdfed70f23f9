"""Sight: the model's forward pass in training, on images of any size up to the full one.

A smaller image takes a window of the position embeddings, so that a pixel is a pixel in every
stage and nothing has to be learnt anew when images grow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import AttentionInterface, LlavaForConditionalGeneration

from eos.miniature.model import GRID
from eos.miniature.training.lessons import Lesson

IN_PARTS = "eos-in-parts"
START = 2  # where visual tokens begin: after the start token and the user's mark


def look(
    model: LlavaForConditionalGeneration, pixels: Tensor, *, corner: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Run the vision tower: the patches ``[B, P, D]`` the projector reads, the class token."""
    tower = model.model.vision_tower
    patches = tower.embeddings.patch_embedding(pixels)
    side = patches.shape[-1]
    places = tower.embeddings.position_embedding.weight
    grid = places[1:].view(GRID, GRID, -1)
    top, left = corner
    window = grid[top : top + side, left : left + side].reshape(side * side, -1)
    own = (tower.embeddings.class_embedding + places[0]).expand(len(pixels), 1, -1)
    states = torch.cat([own, patches.flatten(2).mT + window], dim=1)
    states = tower.pre_layrnorm(states)
    for layer in tower.encoder.layers[:-1]:
        states = layer(states, None)
    whole = tower.post_layernorm(tower.encoder.layers[-1](states, None)[:, 0])
    return states[:, 1:], whole


def project(model: LlavaForConditionalGeneration, patches: Tensor) -> Tensor:
    """Turn patches into visual tokens ``[B, P, D]``."""
    features: Tensor = model.model.multi_modal_projector(patches)
    return features


@dataclass
class Gaze:
    """Where words look, in the supervised layers.

    Attributes:
        relevant: which patches each word after the image should look at, ``[B, W, P]``.
        layers: of the decoder.
        shares: of the attention to the image, averaged over heads, that goes to relevant patches;
            ``[B, W]`` for each layer that has run.
    """

    relevant: Tensor
    layers: tuple[int, ...]
    shares: list[Tensor] = field(default_factory=list)

    def follow(self, words: Tensor, patches: Tensor, *, layer: int, scaling: float) -> None:
        """Note where queries ``[B, H, W, d]`` look among keys ``[B, H, P, d]``."""
        if layer in self.layers:
            looks = (words @ patches.mT * scaling).softmax(-1).mean(1)
            self.shares.append((looks * self.relevant).sum(-1))


def read(
    model: LlavaForConditionalGeneration,
    lesson: Lesson,
    features: Tensor,
    *,
    gaze: Gaze | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run the decoder on visual tokens and questions; a gaze is filled on the way.

    Returns:
        logits ``[B, T, vocabulary]``, and the states before and after every layer ``[B, T, D]``.
    """
    embedded = model.get_input_embeddings()(lesson.ids)
    end = START + features.shape[1]
    embedded = torch.cat([embedded[:, :START], features, embedded[:, end:]], dim=1)
    with _attending_in_parts(model):
        out = model.model.language_model(
            inputs_embeds=embedded,
            attention_mask=lesson.mask(),
            position_ids=lesson.positions,
            use_cache=False,
            output_hidden_states=True,
            image=(START, end),
            gaze=gaze,
        )
    return model.lm_head(out.last_hidden_state), out.hidden_states


@contextmanager
def _attending_in_parts(model: LlavaForConditionalGeneration) -> Iterator[None]:
    config = model.model.language_model.config
    before = config._attn_implementation
    config._attn_implementation = IN_PARTS
    try:
        yield
    finally:
        config._attn_implementation = before


def _attend_in_parts(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    *,
    scaling: float,
    image: tuple[int, int],
    gaze: Gaze | None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as with the whole mask, in half the time: the image is plainly causal by itself."""
    first, end = image
    seen = F.scaled_dot_product_attention(
        query[:, :, :end], key[:, :, :end], value[:, :, :end], is_causal=True, scale=scaling
    )
    words = query[:, :, end:]
    told = F.scaled_dot_product_attention(
        words, key, value, attn_mask=attention_mask[:, :, end:], scale=scaling
    )
    if gaze is not None:
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        gaze.follow(words, key[:, :, first:end], layer=layer, scaling=scaling)
    return torch.cat([seen, told], dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(IN_PARTS, _attend_in_parts)
