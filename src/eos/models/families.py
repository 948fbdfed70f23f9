"""Families: all that is special about each supported model class, one entry each.

The only file that compares a ``model_type``. A new family is one entry here and one small
configuration in `eos.testing.tiny`; the contract tests run over the registry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eos.errors import BackboneError


@dataclass(frozen=True)
class Family:
    """What EOS must know about a model class.

    Attributes:
        decoder: name of the text decoder inside the multimodal model.
        visual_ids: configuration entries that hold the placeholder ids of visual tokens.
        token_types: processor output that marks visual tokens, if the model takes one.
        tokens_per_image: visual tokens of every image, from the model's configuration; None if an
            image may have any number of them, as with tiles or free sizes.
        encode_once: whether image features depend on ``pixel_values`` alone and may replace them in
            ``generate()``, as ``mm_encoder_outputs``.
        class_tower: ``model_type`` of the vision tower whose class attention can be read, if any.
        deepstack: whether visual features are added again between the first decoder layers.
        rotary_by_type: whether the decoder has a rotary embedding for each type of layer.
        both_ways: whether tokens of one image attend to each other in both directions.
    """

    decoder: str = "language_model"
    visual_ids: tuple[str, ...] = ("image_token_id",)
    token_types: str | None = None
    tokens_per_image: Callable[[Any], int] | None = None
    encode_once: bool = False
    class_tower: str | None = None
    deepstack: bool = False
    rotary_by_type: bool = False
    both_ways: bool = False

    @property
    def any_count(self) -> bool:
        """Whether an image may have any number of tokens."""
        return self.tokens_per_image is None

    def has_class_attention(self, config: Any) -> bool:
        """Whether the projector reads layer -2 of a tower with a class token."""
        if self.class_tower is None:
            return False
        tower, layer = config.vision_config.model_type, config.vision_feature_layer
        return bool(tower == self.class_tower and layer == -2)


def family_of(config: Any) -> Family:
    """Look up the family of a model by its configuration."""
    if config.model_type not in FAMILIES:
        raise BackboneError(
            f"expected a model of type {', '.join(FAMILIES)}; found {config.model_type!r}. "
            "CONTRIBUTING.md says how to add a family"
        )
    return FAMILIES[config.model_type]


def _patches(config: Any) -> int:
    vision = config.vision_config
    return int(vision.image_size // vision.patch_size) ** 2


_WITH_VIDEO = ("image_token_id", "video_token_id")
_QWEN = {"visual_ids": _WITH_VIDEO, "token_types": "mm_token_type_ids"}

# by `config.model_type`
FAMILIES: dict[str, Family] = {
    "llava": Family(tokens_per_image=_patches, encode_once=True, class_tower="clip_vision_model"),
    "llava_next": Family(),
    "llava_onevision": Family(visual_ids=_WITH_VIDEO),
    "qwen2_vl": Family(**_QWEN),
    "qwen2_5_vl": Family(**_QWEN),
    "qwen3_vl": Family(**_QWEN, deepstack=True),
    "internvl": Family(),
    "idefics3": Family(decoder="text_model"),
    "smolvlm": Family(decoder="text_model"),
    "gemma3": Family(
        tokens_per_image=lambda config: config.mm_tokens_per_image,
        token_types="token_type_ids",
        rotary_by_type=True,
        both_ways=True,
    ),
}
