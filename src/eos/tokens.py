"""The values that packages share, and the letters their shapes are written in.

B batch, T sequence, N visual tokens, K kept, M = N - K candidates, D width, H heads, L layers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -100  # label of positions without a loss, as in transformers
LAST_STATES = 3  # hidden states of a vision tower that hold the inputs of its last two layers


@dataclass(frozen=True)
class Vision:
    """The vision tower's view of one image a sample, class token first, before the projector.

    Attributes:
        states: output of the layer that the projector reads, ``[B, 1 + N, C]``.
        cls_attention: the class token's attention in that layer, ``[B, H, 1 + N]``.
        keys: of that layer, averaged over heads, ``[B, 1 + N, E]``.
        last: queries and keys of the tower's last layer, heads concatenated, ``[B, 1 + N, C]``.
        project: the projector, from C to the decoder's width.
    """

    states: Tensor
    cls_attention: Tensor
    keys: Tensor
    last: tuple[Tensor, Tensor]
    project: Callable[[Tensor], Tensor]

    def at(self, images: Tensor) -> "Vision":
        """Select images by their places, ``[I]``."""
        rows = (self.states, self.cls_attention, self.keys, *self.last)
        states, attention, keys, queries, last = (x[images] for x in rows)
        return Vision(states, attention, keys, (queries, last), self.project)


def take(values: Tensor, index: Tensor) -> Tensor:
    """Gather the rows ``index`` ``[..., K]`` of ``values`` ``[..., N, D]``."""
    if index.shape[:-1] != values.shape[:-2] or not values.is_contiguous():
        return torch.take_along_dim(values, index.unsqueeze(-1), dim=-2)
    # Copying whole rows is faster than a gather, and remembers one number a row for its gradient.
    samples, tokens = values.shape[:-2].numel(), values.shape[-2]
    if samples != 1:
        first = torch.arange(0, samples * tokens, tokens, device=index.device)
        index = index + first.view(*index.shape[:-1], 1)
    rows = values.flatten(0, -2).index_select(0, index.flatten())
    return rows.view(*index.shape, values.shape[-1])
