"""Processor: models by name, their fingerprints, and text in and out of them.

Chat templates, padding and decoding are here; tasks, plans and reduction are not.
"""

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from transformers import AutoProcessor, PreTrainedModel, ProcessorMixin
from transformers.modeling_outputs import BaseModelOutputWithPooling

from eos.errors import BackboneError
from eos.models.devices import device_of, named_weights
from eos.models.families import family_of
from eos.tokens import LAST_STATES

MINIATURE = "miniature"
Processor: TypeAlias = ProcessorMixin  # others name it without importing transformers
TEXT, MINIATURE_TEXT = 64, 16  # tokens of a question, templates included
SAMPLES = 256  # values of each tensor in a fingerprint


def locate(source: str | Path) -> str | Path:
    """Resolve "miniature" to its packaged folder; anything else stays as it is."""
    if source != MINIATURE:
        return source
    folder = Path(str(files("eos"))) / MINIATURE / "weights"
    if not (folder / "config.json").exists():
        raise BackboneError(
            "expected the weights of the miniature in the package, found none; train them with "
            "`python -m eos.miniature.training.train --out DIR` and name the folder DIR/weights"
        )
    return folder


def model_name(source: str | Path | PreTrainedModel) -> str:
    """Name a model in tables: 'miniature', a hub id, or the last part of a folder's path."""
    origin = source.name_or_path if isinstance(source, PreTrainedModel) else source
    if not origin:
        return str(source.config.model_type)
    packaged = Path(str(files("eos"))) / MINIATURE / "weights"
    if origin == MINIATURE or Path(origin) == packaged:
        return MINIATURE
    return Path(origin).resolve().name if Path(origin).exists() else str(origin)


@torch.no_grad()
def fingerprint(model: PreTrainedModel) -> str:
    """Hash a sample of the weights: a name or folder does not identify a model, its weights do."""
    digest = hashlib.sha256()
    for name, tensor in named_weights(model):
        flat = tensor.flatten()
        values = flat[:: max(1, len(flat) // SAMPLES)].double().cpu()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:16]


def text_length(source: str | Path | PreTrainedModel) -> int:
    """Give the text length that costs of a model assume: a short question with its template."""
    return MINIATURE_TEXT if model_name(source) == MINIATURE else TEXT


def load_processor(source: str | Path | PreTrainedModel) -> Processor:
    """Load the processor of a model: of a name, a folder, or of where a model came from.

    >>> load_processor("miniature").tokenizer.padding_side
    'left'
    """
    origin = source.name_or_path if isinstance(source, PreTrainedModel) else locate(source)
    if not origin:
        raise BackboneError(
            "expected a model that was loaded from a name or a folder, which has its processor "
            "too; found one made in memory. Pass its processor as well"
        )
    try:
        processor = AutoProcessor.from_pretrained(origin)
    except (OSError, ValueError) as failure:
        raise BackboneError(
            f"expected a model id or a folder with a processor, found {str(origin)!r}: {failure}"
        ) from None
    if not isinstance(processor, ProcessorMixin) or processor.chat_template is None:
        raise BackboneError(
            f"expected a processor of images and text with a chat template in {str(origin)!r}; "
            f"found {type(processor).__name__}"
        )
    return processor


def read_conversations(
    processor: Processor, conversations: Sequence[list[dict[str, Any]]]
) -> dict[str, Any]:
    """Turn conversations into a model's inputs, padded at the left, ready to be answered."""
    encoded = processor.apply_chat_template(
        list(conversations),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        processor_kwargs={"padding": True, "padding_side": "left", "return_tensors": "pt"},
    )
    return dict(encoded)


def place_inputs(model: PreTrainedModel, inputs: dict[str, Any]) -> dict[str, Any]:
    """Move inputs to where a model is, pixels in its precision."""
    placed, device = {}, device_of(model)
    for name, value in inputs.items():
        dtype = model.dtype if value.is_floating_point() else value.dtype
        placed[name] = value.to(device, dtype)
    return placed


def place_batch(
    model: PreTrainedModel, batch: tuple[dict[str, Any], Tensor]
) -> tuple[dict[str, Any], Tensor]:
    """Move inputs and labels to where a model is."""
    inputs, labels = batch
    return place_inputs(model, inputs), labels.to(device_of(model))


@torch.no_grad()
def look_once(model: PreTrainedModel, inputs: dict[str, Any]) -> dict[str, Any]:
    """Replace pixels by the vision tower's features of them, for several generations.

    The tower's last hidden states come with them, for plans that read the tower. Families whose
    features depend on more than the pixels keep them; text alone has none.
    """
    if "pixel_values" not in inputs or not family_of(model.config).encode_once:
        return inputs
    rest = {name: value for name, value in inputs.items() if name != "pixel_values"}
    seen = model.get_image_features(pixel_values=inputs["pixel_values"], return_dict=True)
    states = seen.hidden_states and seen.hidden_states[-LAST_STATES:]
    slim = BaseModelOutputWithPooling(pooler_output=seen.pooler_output, hidden_states=states)
    return {**rest, "mm_encoder_outputs": {"image": slim}}


def continue_greedily(
    model: PreTrainedModel, inputs: dict[str, Any], *, processor: Processor, new_tokens: int
) -> list[str]:
    """Generate the most probable words, at most ``new_tokens`` tokens, without special ones."""
    # generate adds to the dictionary of features: each call is given its own
    own = {name: dict(x) if isinstance(x, dict) else x for name, x in inputs.items()}
    settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": new_tokens}
    unused = dict.fromkeys(["temperature", "top_p", "top_k"])  # a checkpoint may set them
    pad = processor.tokenizer.pad_token_id
    ids = model.generate(**own, **settings, **unused, pad_token_id=pad)
    new = ids[:, inputs["input_ids"].shape[1] :]
    return [text.strip() for text in processor.batch_decode(new, skip_special_tokens=True)]


def count_tokens(processor: Processor, text: str) -> int:
    """Count the tokens of a text, without special ones."""
    return len(processor.tokenizer(text, add_special_tokens=False)["input_ids"])
