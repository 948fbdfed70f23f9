"""Hooks: callbacks that may replace the inputs of decoder layers, for one `with` block.

Forward pre-hooks only, removed in `finally`, nothing left on any module. The keywords of
transformers' layers are used in this file only.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from eos.errors import BackboneError
from eos.models.attention import KEYWORD, Keys, checkpointing, weighing
from eos.models.backbone import Backbone, LayerCall
from eos.models.vision import VisionTap
from eos.tokens import IGNORED

_IMAGES = ("pixel_values", "pixel_values_videos", "image_hidden_states")
_REQUIRED = ("position_embeddings", "attention_mask", "past_key_values")
_owners: "WeakKeyDictionary[PreTrainedModel, int]" = WeakKeyDictionary()
_lock = threading.Lock()


@dataclass(frozen=True)
class ModelCall:
    """One call of the multimodal model, before anything is computed.

    Attributes:
        ids: the new tokens, ``[B, T]``; None if only embeddings were given.
        visual: which of them are visual, ``[B, T]``; None like ``ids``.
        padding: the caller's 2-D attention mask, ``[B, T]`` with past tokens, or None.
        answer: which tokens are labelled, that is, not part of the question; None without labels.
        vision: records the vision tower's inputs, if attached.
        positions: the caller's position ids, ``[B, T]`` or ``[3, B, T]``, or None.
    """

    ids: Tensor | None = None
    visual: Tensor | None = None
    padding: Tensor | None = None
    answer: Tensor | None = None
    vision: VisionTap | None = None
    positions: Tensor | None = None


class PassHooks(Protocol):
    """Callbacks of one forward pass that may replace layer inputs."""

    def enter(self, call: LayerCall) -> LayerCall:
        """Return the inputs of a decoder layer, replaced or as they are."""

    def leave(self, states: Tensor) -> Tensor:
        """Return the input of the final norm, replaced or as it is."""


Begin: TypeAlias = Callable[[ModelCall], PassHooks]  # makes the callbacks of a forward pass
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]


@contextmanager
def hooked(
    backbone: Backbone,
    begin: Begin,
    *,
    vision: bool = False,
    weighted: bool = False,
    recompute: bool = False,
) -> Iterator[PreTrainedModel]:
    """Call ``begin`` at every forward pass, and what it returns before every decoder layer.

    ``vision`` records the vision tower's inputs, ``weighted`` lets callbacks weigh keys,
    ``recompute`` runs layers again in the backward pass. On leaving, the model is exactly what it
    was.
    """
    tap = VisionTap(backbone) if vision else None
    _claim(backbone.model)
    handles: list[Any] = []
    settings = ExitStack()
    try:
        if weighted:
            settings.enter_context(weighing(backbone.layers))
        if recompute:
            settings.enter_context(checkpointing(backbone))
        if tap is not None:
            handles += tap.attach()
        hooks = _Hooks(backbone, begin, tap, begin(ModelCall()))
        for module, hook in hooks.all():
            handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield backbone.model
    finally:
        for handle in handles:
            handle.remove()
        settings.close()
        with _lock:
            _owners.pop(backbone.model, None)


def _claim(model: PreTrainedModel) -> None:
    with _lock:
        if model in _owners:
            where = (
                "by this thread" if _owners[model] == threading.get_ident() else "in another thread"
            )
            raise BackboneError(
                f"this model is already being reduced {where}; leave that block first, or load the "
                "model a second time"
            )
        _owners[model] = threading.get_ident()


@dataclass
class _Hooks:
    """The forward pre-hooks of a block, and what they keep of the forward pass under way.

    Attributes:
        backbone: the model.
        begin: makes the callbacks of a forward pass.
        tap: records the vision tower's inputs, or None.
        callbacks: of the forward pass.
        labels: which only the outermost model receives.
        added: by layer, features that the decoder would add at full-length positions.
    """

    backbone: Backbone
    begin: Begin
    tap: VisionTap | None
    callbacks: PassHooks
    labels: Tensor | None = None
    added: dict[int, Tensor] = field(default_factory=dict)

    def all(self) -> Iterator[tuple[nn.Module, Callable[..., Any]]]:
        """List the modules with their hooks."""
        backbone = self.backbone
        yield backbone.model, self.outermost
        yield backbone.multimodal, self.multimodal
        if backbone.family.deepstack:
            yield backbone.decoder, self.decoder
        for index, layer in enumerate(backbone.layers):
            yield layer, partial(self.layer, index)
        yield backbone.decoder.norm, self.norm

    def outermost(self, module: nn.Module, args: Args, kwargs: Kwargs) -> None:
        """Record the labels."""
        self.labels = kwargs.get("labels")

    def multimodal(self, module: nn.Module, args: Args, kwargs: Kwargs) -> None:
        """Begin a forward pass."""
        if _owners.get(self.backbone.model) != threading.get_ident():
            raise BackboneError(
                "this model is being reduced in another thread: call it only from the thread that "
                "entered the block"
            )
        ids = kwargs.get("input_ids", args[0] if args else None)
        mask, targets, self.labels = kwargs.get("attention_mask"), self.labels, None
        # a placeholder id without an image is a token that the model happened to generate
        encoded = kwargs.get("mm_encoder_outputs") or {}  # of images and videos, by `generate`
        given = [*encoded.values(), *(kwargs.get(name) for name in _IMAGES)]
        has_images = any(value is not None for value in given)
        visual = None if ids is None else self.backbone.visual_mask(ids) & has_images
        padding = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
        answer = None if targets is None else targets != IGNORED
        image = encoded.get("image")
        if self.tap is not None and image is not None:
            self.tap.take(image.hidden_states)  # the tower may have run before the hooks were there
        positions = kwargs.get("position_ids")
        self.callbacks = self.begin(ModelCall(ids, visual, padding, answer, self.tap, positions))

    def decoder(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        """Take over the features that the decoder would add between layers."""
        self.added.clear()
        features = kwargs.get("deepstack_visual_embeds")
        if features is None:
            return None
        where = kwargs["visual_pos_masks"][..., None]
        blank = torch.zeros_like(kwargs["inputs_embeds"])
        for layer, feature in enumerate(features):
            self.added[layer + 1] = blank.masked_scatter(where, feature.to(blank))
        return args, {**kwargs, "deepstack_visual_embeds": None}

    def layer(self, index: int, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        """Let the callbacks replace a decoder layer's inputs."""
        missing = [name for name in _REQUIRED if name not in kwargs]
        if missing:
            raise BackboneError(
                f"expected decoder layers to be given {', '.join(_REQUIRED)}; transformers "
                f"{transformers.__version__} does not give {', '.join(missing)}"
            )
        call = LayerCall(
            index=index,
            states=args[0] if args else kwargs["hidden_states"],
            mask=kwargs["attention_mask"],
            rotary=kwargs["position_embeddings"],
            position_ids=kwargs.get("position_ids"),
            cache=kwargs["past_key_values"],
            added=self.added.get(index),
        )
        new = self.callbacks.enter(call)
        if new is call:
            return None
        kwargs = {
            **kwargs,
            "attention_mask": new.mask,
            "position_embeddings": new.rotary,
            "past_key_values": new.cache,
        }
        if new.weights is not None or new.tap is not None:
            kwargs[KEYWORD] = Keys(new.weights, new.tap)
        if "position_ids" in kwargs:
            kwargs["position_ids"] = new.position_ids
        if args:
            return (new.states, *args[1:]), kwargs
        return (), {**kwargs, "hidden_states": new.states}

    def norm(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        """Let the callbacks replace the final norm's input."""
        new = self.callbacks.leave(args[0])
        return None if new is args[0] else ((new, *args[1:]), kwargs)
