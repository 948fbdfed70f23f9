"""Tiny: a model of every family with random weights and a few thousand parameters, with prompts.

For contract tests and for trying things out: the real classes, the real shapes of inputs, no
download. What such a model says means nothing.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageTextToText, PretrainedConfig

from eos.backbones.backbone import Backbone
from eos.backbones.families import FAMILIES

TEXT = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CLIP = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 24,
    "patch_size": 4,
    "projection_dim": 32,
}
SIGLIP = {**CLIP, "model_type": "siglip_vision_model"}
IMAGE, VIDEO = 100, 101
