"""Tiny: a model of every family with random weights and a few thousand parameters, with prompts.

For contract tests and for trying things out: the real classes, the real shapes of inputs, no
download. What such a model says means nothing.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AutoConfig, AutoModelForImageTextToText

from eos.models.backbone import Backbone

IMAGE, VIDEO, START, END = 100, 101, 102, 103  # placeholder ids
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
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 24,
    "patch_size": 4,
}
LLAMA = {**TEXT, "model_type": "llama"}
QWEN2 = {**TEXT, "model_type": "qwen2"}
CLIP = {**VISION, "model_type": "clip_vision_model", "projection_dim": 32}
SIGLIP = {**VISION, "model_type": "siglip_vision_model", "vision_use_head": False}
QWEN_VISION = {
    "depth": 2,
    "embed_dim": 32,
    "hidden_size": 64,
    "num_heads": 4,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
LLAVA = {
    "text_config": LLAMA,
    "vision_config": CLIP,
    "image_token_index": IMAGE,
    "vision_feature_layer": -2,
}
IDEFICS = {
    "text_config": LLAMA,
    "vision_config": VISION,
    "image_token_id": IMAGE,
    "scale_factor": 2,
}
IDS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}


def _qwen(**vision: Any) -> dict[str, Any]:
    text = {**TEXT, "rope_parameters": MROPE}
    del text["head_dim"]
    return {**IDS, "text_config": text, "vision_config": {**QWEN_VISION, **vision}}


CONFIGS: dict[str, dict[str, Any]] = {
    "llava": LLAVA,
    "llava_next": {**LLAVA, "image_grid_pinpoints": [[24, 48], [48, 24]]},
    "llava_onevision": {
        "text_config": QWEN2,
        "vision_config": SIGLIP,
        "image_token_index": IMAGE,
        "video_token_index": VIDEO,
        "image_grid_pinpoints": [[24, 24], [24, 48], [48, 24]],
    },
    "qwen2_vl": _qwen(),
    "qwen2_5_vl": _qwen(
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=64,
        window_size=16,
        fullatt_block_indexes=[1],
    ),
    "qwen3_vl": {
        **IDS,
        "text_config": {**TEXT, "rope_parameters": {**MROPE, "mrope_interleaved": True}},
        "vision_config": {
            **QWEN_VISION,
            "hidden_size": 32,
            "intermediate_size": 48,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
    },
    "internvl": {
        "text_config": QWEN2,
        "vision_config": {**VISION, "image_size": [24, 24], "patch_size": [4, 4]},
        "image_token_id": IMAGE,
        "downsample_ratio": 0.5,
    },
    "idefics3": IDEFICS,
    "smolvlm": IDEFICS,
    "gemma3": {
        "text_config": {
            **TEXT,
            "query_pre_attn_scalar": 16,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
        "vision_config": SIGLIP,
        "image_token_index": IMAGE,
        "mm_tokens_per_image": 9,
    },
}


def tiny_backbone(model_type: str, *, attn_implementation: str = "sdpa", seed: int = 0) -> Backbone:
    """Build a model of a family with random weights, large enough to tell tokens apart."""
    config = AutoConfig.for_model(model_type, **CONFIGS[model_type])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(
            config, attn_implementation=attn_implementation
        )
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.15)
    return Backbone(model)


def tiny_inputs(
    backbone: Backbone,
    *,
    texts: tuple[int, ...] = (6,),
    images: int = 1,
    seed: int = 0,
    small: bool = False,
) -> dict[str, Tensor]:
    """Make a left-padded batch: one sample for each text length, ``images`` images in each.

    ``small`` images have fewer visual tokens, in families whose images have any number of them.
    """
    generator = torch.Generator().manual_seed(seed)
    kind = backbone.model.config.model_type
    vision = PIXELS.get(kind, _plain)(len(texts), images, generator, small)
    with torch.no_grad():
        features = backbone.model.get_image_features(**vision).pooler_output if images else []
    total = sum(feature.shape[0] for feature in features)
    each = total // max(1, len(texts) * images)
    prompt = [1, 5] + images * [START, *[IMAGE] * each, END]
    rows = [prompt + torch.randint(6, 90, (n,), generator=generator).tolist() for n in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long(), **(vision if images else {})}
    if backbone.family.token_types is not None:
        inputs[backbone.family.token_types] = (ids == IMAGE).long()
    return inputs


def tiny_samples(
    backbone: Backbone, *, texts: tuple[int, ...], images: tuple[int, ...], seed: int = 0
) -> list[dict[str, Tensor]]:
    """Make single samples of different numbers of visual tokens: every second has small images."""
    return [
        tiny_inputs(backbone, texts=(text,), images=count, seed=seed + i, small=bool(i % 2))
        for i, (text, count) in enumerate(zip(texts, images, strict=True))
    ]


def collated(samples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Put samples into one left-padded batch."""
    lengths, batch = [sample["input_ids"].shape[1] for sample in samples], {}
    for name in {name: None for sample in samples for name in sample}:
        values = [sample[name] for sample in samples if name in sample]
        if values[0].shape == samples[0]["input_ids"].shape:
            values = [pad(x, (max(lengths) - x.shape[1], 0)) for x in values]
        elif name == "pixel_values" and "image_sizes" not in samples[0] and values[0].ndim == 5:
            most = max(x.shape[1] for x in values)  # the model leaves out images of zeros
            values = [pad(x, (0, 0, 0, 0, 0, 0, 0, most - x.shape[1])) for x in values]
        batch[name] = torch.cat(values)
    return batch


def _plain(batch: int, images: int, generator: torch.Generator, small: bool) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(batch * images, 3, 24, 24, generator=generator)}


def _tiled(batch: int, images: int, generator: torch.Generator, small: bool) -> dict[str, Tensor]:
    pixels = torch.randn(batch * images, 3, 3, 24, 24, generator=generator)
    size = [16, 48] if small else [24, 48]  # of the same tiles, which the model trims
    return {"pixel_values": pixels, "image_sizes": torch.tensor([size] * batch * images)}


def _nested(batch: int, images: int, generator: torch.Generator, small: bool) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(batch, images, 3, 24, 24, generator=generator)}


def _patches(batch: int, images: int, generator: torch.Generator, small: bool) -> dict[str, Tensor]:
    height, width = (4, 6) if small else (6, 6)
    grid = torch.tensor([[1, height, width]] * batch * images)
    pixels = torch.randn(batch * images * height * width, 3 * 2 * 4 * 4, generator=generator)
    return {"pixel_values": pixels, "image_grid_thw": grid}


PIXELS: dict[str, Callable[[int, int, torch.Generator, bool], dict[str, Tensor]]] = {
    "llava_next": _tiled,
    "llava_onevision": _tiled,
    "qwen2_vl": _patches,
    "qwen2_5_vl": _patches,
    "qwen3_vl": _patches,
    "idefics3": _nested,
    "smolvlm": _nested,
}
