"""Random LLaVA: the real model in real sizes with random weights, for measuring time and memory.

Its outputs are noise; time and memory do not depend on them. The vision tower is a stub without
``tower=True``, since `eos bench` does not measure it: prompts have visual features, not pixels.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import psutil
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    Cache,
    DynamicCache,
    PreTrainedModel,
)
from transformers.initialization import no_init_weights
from transformers.modeling_outputs import BaseModelOutputWithPooling

from eos.errors import BackboneError, ConfigError
from eos.models.backbone import Backbone

Size: TypeAlias = Literal["tiny", "small", "7b"]

SPREAD = 0.02  # standard deviation of the weights, as LLaMA is initialised
HEADROOM = 1.1  # memory needed over the weights' own: caches, activations, the library
SYSTEM_TOKENS = 5  # text before the image, as in LLaVA's template; the rest is the question
TOWER = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 32,
    "projection_dim": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": 4,
}
CLIP_LARGE = {  # LLaVA-1.5's own
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "projection_dim": 768,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
}


class _Sizes(NamedTuple):
    layers: int
    hidden: int
    intermediate: int
    heads: int
    patches: int  # a side of the image
    vocabulary: int


SIZES: dict[str, _Sizes] = {
    "tiny": _Sizes(4, 64, 96, 4, patches=6, vocabulary=128),
    "small": _Sizes(24, 1024, 2816, 16, patches=24, vocabulary=32064),
    "7b": _Sizes(32, 4096, 11008, 32, patches=24, vocabulary=32064),  # LLaVA-1.5's own
}


def random_llava(
    size: Size,
    *,
    dtype: torch.dtype | str = torch.float32,
    attn_implementation: str = "sdpa",
    device: torch.device | str = "cpu",
    num_layers: int | None = None,
    tower: bool = False,
    seed: int = 0,
) -> Backbone:
    """Build a LLaVA of a size with random weights, each allocated once in its final dtype.

    ``num_layers`` replaces the size's own depth; ``tower`` gives it the vision tower of LLaVA-1.5
    (CLIP ViT-L/14, 0.3 billion weights) instead of a stub. The 7b needs 27 GB in float32 and 13.5
    GB in bfloat16; on some CPUs bfloat16 products end the process unless ONEDNN_MAX_CPU_ISA is set
    to AVX512_CORE_FP16 before torch is imported.
    """
    if size not in SIZES:
        raise ConfigError(f"expected a size of {', '.join(SIZES)}; found {size!r}")
    config = _config(SIZES[size], num_layers, vision=CLIP_LARGE if tower else TOWER)
    with torch.device("meta"):
        _check_memory(_empty(config, dtype, attn_implementation), size)
    model = _empty(config, dtype, attn_implementation)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=SPREAD, generator=generator)
        else:
            parameter.data.fill_(0.0 if name.endswith("bias") else 1.0)
    return Backbone(model.to(device))


def visual_tokens(backbone: Backbone) -> int:
    """Count the visual tokens of one image."""
    family, config = backbone.family, backbone.model.config
    if family.tokens_per_image is None or not family.encode_once:
        raise BackboneError(
            "expected a model of type llava, whose images all have the same number of tokens, and "
            f"features that can replace their pixels; found {config.model_type!r}"
        )
    return family.tokens_per_image(config)


def random_prompt(
    backbone: Backbone, *, text_tokens: int, batch: int = 1, seed: int = 0
) -> dict[str, Any]:
    """Make the inputs of a prefill: text, an image's worth of visual features, and a question."""
    if text_tokens < 2 or batch < 1:
        raise ConfigError(
            f"expected at least 2 text tokens and a batch of 1; found {text_tokens} and {batch}"
        )
    generator = torch.Generator().manual_seed(seed)
    config, tokens = backbone.model.config, visual_tokens(backbone)
    shape, width = (batch, text_tokens), config.text_config.hidden_size
    text = torch.randint(3, min(config.image_token_id, 32000), shape, generator=generator)
    before = min(SYSTEM_TOKENS, text_tokens - 1)
    image = torch.full((batch, tokens), config.image_token_id)
    ids = torch.cat([text[:, :before], image, text[:, before:]], dim=1)
    features = torch.randn(batch, tokens, width, generator=generator) * SPREAD
    features = features.to(backbone.model.device, backbone.model.dtype)
    encoded = BaseModelOutputWithPooling(pooler_output=list(features))
    return {"input_ids": ids.to(features.device), "mm_encoder_outputs": {"image": encoded}}


def encoded_prompt(backbone: Backbone, prompt: dict[str, Any], *, seed: int = 0) -> dict[str, Any]:
    """Encode random pixels for a prompt by the vision tower, as `generate` does beforehand."""
    side = backbone.model.config.vision_config.image_size
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(len(prompt["input_ids"]), 3, side, side, generator=generator)
    pixels = pixels.to(backbone.model.device, backbone.model.dtype)
    encoded = backbone.model.get_image_features(pixel_values=pixels, return_dict=True)
    return {**prompt, "mm_encoder_outputs": {"image": encoded}}


def held_bytes(cache: Cache) -> int:
    """Count the bytes of the storage behind a cache's tensors, which may be views of it."""
    held = ((layer.keys, layer.values) for layer in cache.layers)
    return sum(x.untyped_storage().nbytes() for pair in held for x in pair)


def plain_prefill(backbone: Backbone, states: Tensor, *, lengths: Sequence[int]) -> Tensor:
    """Run the decoder's layers on ``states`` ``[B, T, D]``, layer l on its first ``lengths[l]``.

    What a model costs at these lengths if nothing else is done: no masks, no scores, no gathers.
    Gives the logits of the last token, ``[B, 1, V]``.
    """
    cache = DynamicCache(config=backbone.decoder.config)
    positions = torch.arange(states.shape[1], device=states.device)[None]
    cos, sin = backbone.rotary(states, positions, 0)
    for layer, length in zip(backbone.layers, lengths, strict=True):
        states = layer(
            states[:, :length],
            attention_mask=None,
            position_ids=positions[:, :length],
            past_key_values=cache,
            use_cache=True,
            position_embeddings=(cos[:, :length], sin[:, :length]),
        )
    return backbone.model.lm_head(backbone.decoder.norm(states[:, -1:]))


def available_memory() -> int:
    """Read how many bytes of main memory can still be allocated."""
    return psutil.virtual_memory().available


def _config(sizes: _Sizes, num_layers: int | None, *, vision: dict[str, Any]) -> Any:
    text = {
        "model_type": "llama",
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": num_layers or sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "max_position_embeddings": 4096,
        "pad_token_id": 0,
    }
    return AutoConfig.for_model(
        "llava",
        text_config=text,
        vision_config={**vision, "image_size": vision["patch_size"] * sizes.patches},
        image_token_index=sizes.vocabulary - 64,  # as in LLaVA-1.5: 32,000 of 32,064
        vision_feature_layer=-2,
        tie_word_embeddings=False,
    )


def _empty(config: Any, dtype: torch.dtype | str, attn_implementation: str) -> PreTrainedModel:
    """Allocate a model without touching its weights: untouched pages cost nothing."""
    try:
        with no_init_weights():
            return AutoModelForImageTextToText.from_config(
                config, dtype=dtype, attn_implementation=attn_implementation
            )
    except ImportError as failure:  # the kernel's package is not installed
        raise BackboneError(f"cannot use {attn_implementation} attention: {failure}") from None


def _check_memory(model: PreTrainedModel, size: str) -> None:
    needed = int(HEADROOM * sum(parameter.nbytes for parameter in model.parameters()))
    available = available_memory()
    if needed > available:
        raise ConfigError(
            f"expected {needed / 2**30:.1f} GiB of free memory for size {size} in "
            f"{str(model.dtype).removeprefix('torch.')}; found {available / 2**30:.1f} GiB. Choose "
            "bfloat16, a smaller size, or another machine"
        )
