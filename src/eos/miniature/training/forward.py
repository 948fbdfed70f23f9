"""Forward: the model's forward pass in training, on images of any size up to the full one.

A smaller image takes a window of the position embeddings, so that a pixel is a pixel in every
phase and nothing has to be learnt anew when images grow.
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
from eos.miniature.training.batches import TrainingBatch

SPLIT_ATTENTION = "eos-split-attention"
FIRST_VISUAL = 2  # where visual tokens begin: after the start token and the user's mark


def vision_features(
    model: LlavaForConditionalGeneration, pixels: Tensor, *, corner: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Run the vision tower: patches ``[B, P, D]`` for the projector, class tokens ``[B, D]``.

    Args:
        model: its tower has position embeddings of the full grid.
        pixels: ``[B, 3, S, S]``.
        corner: row and column of the images' first patch in the full grid.
    """
    tower = model.model.vision_tower
    patches = tower.embeddings.patch_embedding(pixels)
    side = patches.shape[-1]
    positions = tower.embeddings.position_embedding.weight
    top, left = corner
    window = positions[1:].view(GRID, GRID, -1)[top : top + side, left : left + side]
    class_token = (tower.embeddings.class_embedding + positions[0]).expand(len(pixels), 1, -1)
    states = torch.cat([class_token, patches.flatten(2).mT + window.flatten(0, 1)], dim=1)
    states = tower.pre_layrnorm(states)
    for layer in tower.encoder.layers[:-1]:
        states = layer(states, None)
    pooled = tower.post_layernorm(tower.encoder.layers[-1](states, None)[:, 0])
    return states[:, 1:], pooled


@dataclass
class ImageAttention:
    """The attention that text tokens pay to relevant patches, in the supervised layers.

    Attributes:
        relevant: which patches each token after the image should attend to, ``[B, W, P]``.
        layers: of the decoder.
        shares: of the attention to the image, averaged over heads, that goes to relevant patches;
            ``[B, W]`` for each layer that has run.
    """

    relevant: Tensor
    layers: tuple[int, ...]
    shares: list[Tensor] = field(default_factory=list)

    def record(self, queries: Tensor, keys: Tensor, *, layer: int, scaling: float) -> None:
        """Record the attention of queries ``[B, H, W, d]`` to the image's keys ``[B, H, P, d]``."""
        if layer in self.layers:
            attention = (queries @ keys.mT * scaling).softmax(-1).mean(1)
            self.shares.append((attention * self.relevant).sum(-1))


def run_decoder(
    model: LlavaForConditionalGeneration,
    batch: TrainingBatch,
    visual: Tensor,
    *,
    attention: ImageAttention | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run the decoder on visual tokens ``[B, P, D]`` and questions; record attention if given.

    Returns:
        logits ``[B, T, vocabulary]``, and the states before and after every layer ``[B, T, D]``.
    """
    embedded = model.get_input_embeddings()(batch.ids)
    end = FIRST_VISUAL + visual.shape[1]
    embedded = torch.cat([embedded[:, :FIRST_VISUAL], visual, embedded[:, end:]], dim=1)
    with _using_split_attention(model):
        out = model.model.language_model(
            inputs_embeds=embedded,
            attention_mask=batch.mask(),
            position_ids=batch.positions,
            use_cache=False,
            output_hidden_states=True,
            image_end=end,
            image_attention=attention,
        )
    return model.lm_head(out.last_hidden_state), out.hidden_states


@contextmanager
def _using_split_attention(model: LlavaForConditionalGeneration) -> Iterator[None]:
    config = model.model.language_model.config
    before = config._attn_implementation
    config._attn_implementation = SPLIT_ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


def _split_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    *,
    scaling: float,
    image_end: int,
    image_attention: ImageAttention | None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as with the whole mask, in half the time: the image is plainly causal by itself."""
    image = F.scaled_dot_product_attention(
        query[:, :, :image_end],
        key[:, :, :image_end],
        value[:, :, :image_end],
        is_causal=True,
        scale=scaling,
    )
    queries = query[:, :, image_end:]
    text = F.scaled_dot_product_attention(
        queries, key, value, attn_mask=attention_mask[:, :, image_end:], scale=scaling
    )
    if image_attention is not None:
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        keys = key[:, :, FIRST_VISUAL:image_end]
        image_attention.record(queries, keys, layer=layer, scaling=scaling)
    return torch.cat([image, text], dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(SPLIT_ATTENTION, _split_attention)
