"""Sight: the model's forward pass in training, on images of any size up to the full one.

A smaller image takes a window of the position embeddings, so that a pixel is a pixel in every
stage and nothing has to be learnt anew when images grow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import AttentionInterface, LlavaForConditionalGeneration

from eos.miniature.lessons import Lesson
from eos.miniature.model import GRID

IN_PARTS = "eos-in-parts"


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


def read(
    model: LlavaForConditionalGeneration, lesson: Lesson, features: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the decoder on visual tokens and questions.

    Returns:
        logits ``[B, T, vocabulary]``, and the states half way ``[B, T, D]``.
    """
    embedded = model.get_input_embeddings()(lesson.ids)
    start = 2  # after the start token and the user's mark
    count = features.shape[1]
    embedded = torch.cat([embedded[:, :start], features, embedded[:, start + count :]], dim=1)
    with _attending_in_parts(model):
        out = model.model.language_model(
            inputs_embeds=embedded,
            attention_mask=lesson.mask(),
            position_ids=lesson.positions,
            use_cache=False,
            output_hidden_states=True,
            prefix=start + count,
        )
    return model.lm_head(out.last_hidden_state), out.hidden_states[len(out.hidden_states) // 2]


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
    prefix: int,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as with the whole mask, in half the time: the image is plainly causal by itself."""
    image = F.scaled_dot_product_attention(
        query[:, :, :prefix],
        key[:, :, :prefix],
        value[:, :, :prefix],
        is_causal=True,
        scale=scaling,
    )
    text = F.scaled_dot_product_attention(
        query[:, :, prefix:], key, value, attn_mask=attention_mask[:, :, prefix:], scale=scaling
    )
    return torch.cat([image, text], dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(IN_PARTS, _attend_in_parts)
