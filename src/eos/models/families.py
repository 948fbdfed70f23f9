"""Families: where each supported model class keeps its decoder and marks its visual tokens.

A new family is one entry here and one small configuration in `eos.testing.tiny`; the contract
tests run over the registry.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """What EOS must know about a model class.

    Attributes:
        decoder: name of the text decoder inside the multimodal model.
        visual_ids: configuration entries that hold the placeholder ids of visual tokens.
        deepstack: whether visual features are added again between the first decoder layers.
        any_count: whether an image may have any number of tokens, as with tiles or free sizes.
    """

    decoder: str = "language_model"
    visual_ids: tuple[str, ...] = ("image_token_id",)
    deepstack: bool = False
    any_count: bool = True


_WITH_VIDEO = ("image_token_id", "video_token_id")

# by `config.model_type`
FAMILIES: dict[str, Family] = {
    "llava": Family(any_count=False),
    "llava_next": Family(),
    "llava_onevision": Family(visual_ids=_WITH_VIDEO),
    "qwen2_vl": Family(visual_ids=_WITH_VIDEO),
    "qwen2_5_vl": Family(visual_ids=_WITH_VIDEO),
    "qwen3_vl": Family(visual_ids=_WITH_VIDEO, deepstack=True),
    "internvl": Family(),
    "idefics3": Family(decoder="text_model"),
    "smolvlm": Family(decoder="text_model"),
    "gemma3": Family(any_count=False),
}
