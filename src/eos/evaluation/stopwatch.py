"""Stopwatch: how long the callbacks of a forward pass take."""

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import torch
from torch import Tensor

from eos.models.backbone import LayerCall
from eos.models.hooks import Handler, ModelCall

Given = TypeVar("Given")
Made = TypeVar("Made")


class Stopwatch:
    """A handler that adds up the time that another handler takes."""

    def __init__(self, handler: Handler) -> None:
        self.handler, self.seconds = handler, 0.0

    def begin(self, call: ModelCall) -> None:
        """Start a new forward pass."""
        self._timed(self.handler.begin, call)

    def enter(self, call: LayerCall) -> LayerCall:
        """Pass a layer's inputs on."""
        return self._timed(self.handler.enter, call)

    def leave(self, states: Tensor) -> Tensor:
        """Pass the final states on."""
        return self._timed(self.handler.leave, states)

    def _timed(self, function: Callable[[Given], Made], given: Given) -> Made:
        start = now()
        made = function(given)
        self.seconds += now() - start
        return made


def now() -> float:
    """Read the clock when the accelerator has done all of its queued work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return perf_counter()
