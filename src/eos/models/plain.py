"""Plain: Hugging Face models that were not loaded by EOS, taken as they are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import PreTrainedModel

from eos.models.backbone import Backbone
from eos.models.processor import model_name, text_length

VISUAL_TOKENS = 576  # of a plan for a family whose images have any number of tokens


@contextmanager
def frozen(model: PreTrainedModel | Backbone) -> Iterator[Backbone]:
    """Freeze a model inside the block; a plain one is what it was afterwards."""
    if isinstance(model, Backbone):
        yield model
        return
    training, trained = model.training, [x for x in model.parameters() if x.requires_grad]
    try:
        yield Backbone(model)
    finally:
        model.train(training)
        for parameter in trained:
            parameter.requires_grad_(True)


def model_sizes(model: PreTrainedModel | Backbone) -> dict[str, Any]:
    """Read what a plan must know of a model: depth, visual tokens of an image, sizes, name.

    Where images have any number of tokens, plans are written for 576 and rescaled to each prompt.
    """
    backbone = model if isinstance(model, Backbone) else Backbone(model, freeze=False)
    count = backbone.family.tokens_per_image
    return {
        "visual_tokens": VISUAL_TOKENS if count is None else count(backbone.model.config),
        "num_layers": backbone.num_layers,
        "dims": backbone.dims,
        "text_tokens": text_length(backbone.model),
        "backbone": model_name(backbone.model),
    }
