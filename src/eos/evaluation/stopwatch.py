"""Stopwatch: the time that callbacks take in forward passes."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

import torch
from torch import Tensor

from eos.models.backbone import LayerCall
from eos.models.hooks import Begin, ModelCall, PassHooks

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass
class Stopwatch:
    """Adds up the seconds that ``begin`` and the callbacks it makes take."""

    begin: Begin
    seconds: float = 0.0

    def started(self, call: ModelCall) -> "TimedHooks":
        """Begin a forward pass whose callbacks are timed."""
        return TimedHooks(self, self.timed(self.begin, call))

    def timed(self, function: Callable[[Given], Made], given: Given) -> Made:
        """Call a function and add the time it takes."""
        start = now()
        made = function(given)
        self.seconds += now() - start
        return made


@dataclass(frozen=True)
class TimedHooks:
    """The callbacks of one forward pass, timed."""

    watch: Stopwatch
    hooks: PassHooks

    def enter(self, call: LayerCall) -> LayerCall:
        """Time what happens before a layer."""
        return self.watch.timed(self.hooks.enter, call)

    def leave(self, states: Tensor) -> Tensor:
        """Time what happens before the final norm."""
        return self.watch.timed(self.hooks.leave, states)


def now() -> float:
    """Read the clock when all work queued on the device is done."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return perf_counter()
