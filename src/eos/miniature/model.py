"""Model: the miniature's architecture, a LLaVA-1.5 in every respect but its size."""

import torch
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from eos.miniature.language import END, IMAGE, PAD, START, vocabulary

SIZE, PATCH = 96, 4
GRID = SIZE // PATCH


def miniature_config(*, width: int = 128, layers: int = 12, vision_layers: int = 5) -> LlavaConfig:
    """Configure the miniature; smaller values give a sibling for tests."""
    ids = vocabulary()
    heads = width // 32
    vision = CLIPVisionConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=vision_layers,
        num_attention_heads=heads,
        image_size=SIZE,
        patch_size=PATCH,
        projection_dim=width,
    )
    text = LlamaConfig(
        vocab_size=len(ids),
        hidden_size=width,
        intermediate_size=11 * width // 4,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=2048,
        pad_token_id=ids[PAD],
        bos_token_id=ids[START],
        eos_token_id=ids[END],
    )
    return LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=ids[IMAGE],
        image_seq_length=GRID * GRID,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )


def new_model(config: LlavaConfig, *, seed: int) -> LlavaForConditionalGeneration:
    """Make a model with random weights and sinusoidal positions of patches."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlavaForConditionalGeneration._from_config(config, attn_implementation="sdpa")
        with torch.no_grad():
            embeddings = model.model.vision_tower.embeddings
            patches = embeddings.patch_embedding.weight
            patches /= patches.std() * patches[0].numel() ** 0.5  # as large as positions
            positions = embeddings.position_embedding.weight
            positions[1:] = _sinusoidal_positions(GRID, positions.shape[1])
    return model


@torch.no_grad()
def initialise_for_training(model: LlavaForConditionalGeneration) -> None:
    """Initialise words to attend to tokens like them, and layers to add nothing.

    Embeddings must not be small against what the first layers add, and queries unlike keys keep
    attention uniform for long: either way a question never learns to attend to its object.
    """
    embedding: nn.Embedding = model.model.language_model.embed_tokens
    width = embedding.embedding_dim
    embedding.weight.normal_()
    for layer in model.model.language_model.layers:
        attention = layer.self_attn
        attention.q_proj.weight.normal_(std=width**-0.5)
        attention.k_proj.weight.copy_(attention.q_proj.weight)
        attention.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    projector = model.model.multi_modal_projector
    projector.linear_1.weight.normal_(std=0.25 * width**-0.5)  # the tower's features are large
    projector.linear_2.weight.normal_(std=width**-0.5)


def _sinusoidal_positions(grid: int, width: int) -> torch.Tensor:
    """Sines and cosines of a patch's column and row, ``[grid², width]``."""
    rates = 1.0 / 100.0 ** (torch.arange(width // 4) / (width // 4))
    angles = torch.arange(grid)[:, None] * rates
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)
    columns = waves[None].expand(grid, -1, -1)
    rows = waves[:, None].expand(-1, grid, -1)
    return 0.3 * torch.cat([columns, rows], dim=-1).reshape(grid * grid, width)
