"""Reference: the full model beside the reduced one, for alignment (Eq. 14), without gradients.

It starts where the two first differ, from the states they share until then, and is advanced layer
by layer with the very inputs that the model made for the full prompt: embeddings, the vision tower,
the projector, masks and early layers are computed once for both.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from eos.engine.prompt import Prompt, listed
from eos.engine.stages import Stage
from eos.errors import ConfigError
from eos.models.backbone import Backbone, LayerCall
from eos.tokens import take

AlignOn: TypeAlias = Literal["text", "visual", "both"]

EVERY = 4  # App. A.1.2: layers 4, 8, …, 28 of 32


def align_layers(num_layers: int) -> tuple[int, ...]:
    """Name the layers after which states are compared: every fourth; the last of a short model."""
    return tuple(range(EVERY, num_layers, EVERY)) or (num_layers - 1,)


@dataclass(frozen=True)
class Aligned:
    """States after one layer, at the same places of the prompt.

    Attributes:
        layer: after which.
        reduced: of the reduced pass, ``[B, R, D]``.
        full: of the full model, ``[B, R, D]``, without gradient.
        counted: which of the R places count, ``[B, R]``.
    """

    layer: int
    reduced: Tensor
    full: Tensor
    counted: Tensor


@dataclass
class Reference:
    """The full model's current states, and the pairs compared so far.

    Attributes:
        layers: after which to compare.
        on: which tokens: text, visual ones that are left, or both.
        states: of the full prompt, ``[B, T, D]``; None until the passes differ.
        pairs: what was compared; layers before the passes differ have no pair.
    """

    backbone: Backbone
    layers: Collection[int]
    on: AlignOn = "text"
    states: Tensor | None = None
    pairs: list[Aligned] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.on not in ("text", "visual", "both"):
            raise ConfigError(f"expected align_on 'text', 'visual' or 'both', found {self.on!r}")
        outside = [layer for layer in self.layers if not 0 <= layer < self.backbone.num_layers]
        if outside or not self.layers:
            last = self.backbone.num_layers - 1
            raise ConfigError(f"expected alignment layers from 0 to {last}, found {[*self.layers]}")

    @property
    def last(self) -> int:
        """The last layer after which states are compared."""
        return max(self.layers)

    def add(self, features: Tensor) -> None:
        """Add what the model adds to the full prompt between layers."""
        if self.states is not None:
            self.states = self.states + features

    def start(self, states: Tensor) -> None:
        """Begin with the last states that both passes share."""
        if self.states is None:
            self.states = states.detach()

    def compare(self, layer: int, states: Tensor, stage: Stage, prompt: Prompt) -> None:
        """Note the states that left ``layer``, if it is one of those."""
        if layer not in self.layers or self.states is None:
            return
        compared = {"text": ~stage.visual, "visual": stage.visual}.get(self.on, True)
        valid = prompt.valid.gather(1, stage.slots)
        rows, counted = listed(compared & stage.present & valid)
        places = stage.slots.gather(1, rows)
        full = take(self.states.to(states.device), places)
        self.pairs.append(Aligned(layer, take(states, rows), full, counted))

    @torch.no_grad()
    def advance(self, call: LayerCall) -> None:
        """Run the layer that is about to run, on the full prompt."""
        if call.index > self.last:
            self.states = None
        if self.states is None:
            return
        self.states = self.backbone.run_layer(replace(call, states=self.states))
