"""Memory: passes over one batch share the vision tower and early decoder layers.

Inside the block the vision tower, and the decoder layers up to ``until``, return stored outputs
instead of running. For measurements of plans that share the layers before their first step.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from eos.errors import BackboneError
from eos.models.attention import overridden
from eos.models.backbone import Backbone


class Memory:
    """Outputs of the full model on one batch.

    Attributes:
        until: the last decoder layer that returns a stored output; -1 if all run.
    """

    def __init__(self, images: list[Any]) -> None:
        self.until = -1
        self._images = images
        self._layers: dict[int, Tensor] = {}

    def images(self, encode: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stand in for the encoding of images."""
        if not self._images:
            self._images.append(encode(*args, **kwargs))
        return self._images[0]

    def layer(
        self, index: int, forward: Callable[..., Tensor], states: Tensor, **kwargs: Any
    ) -> Tensor:
        """Stand in for the forward of one decoder layer."""
        if index > self.until:
            made = forward(states, **kwargs)
            self._layers.setdefault(index, made)
            return made
        if self._layers[index].shape != states.shape:
            raise BackboneError(
                f"expected nothing reduced before layer {index}, whose stored output has shape "
                f"{list(self._layers[index].shape)}; found inputs of {list(states.shape)}"
            )
        return self._layers[index]


@contextmanager
def remembering(
    backbone: Backbone,
    inputs: Mapping[str, Any],
    *,
    tower: bool = True,
    images: list[Any] | None = None,
    layers: bool = True,
) -> Iterator[Memory]:
    """Share work between passes over ``inputs``; every pass inside the block must be on these.

    Args:
        backbone: the model.
        inputs: without labels.
        tower: whether to share encoded images, too; not if a scorer reads the vision tower.
        images: what an earlier block on the same inputs encoded; an empty list is filled.
        layers: whether to share decoder layers, for which the full model runs once.
    """
    memory, multimodal = Memory([] if images is None else images), backbone.multimodal
    overrides: list[tuple[Any, str, Callable[..., Any]]] = []
    if layers:
        overrides += [
            (layer, "forward", partial(memory.layer, index, layer.forward))
            for index, layer in enumerate(backbone.layers)
        ]
    if tower:
        encode = multimodal.get_image_features
        overrides.append((multimodal, "get_image_features", partial(memory.images, encode)))
    with overridden(overrides):
        if layers:
            with torch.no_grad():
                multimodal(**inputs, use_cache=False)
        yield memory


@contextmanager
def truncated(backbone: Backbone, *, after: int) -> Iterator[None]:
    """Let decoder layers after one return their input, where only earlier states are needed."""

    def passed_on(states: Tensor, **kwargs: Any) -> Tensor:
        return states

    later = list(backbone.layers)[after + 1 :]
    with overridden([(layer, "forward", passed_on) for layer in later]):
        yield
