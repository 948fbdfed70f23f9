"""The values that cross borders, and the letters their shapes are written in.

B batch, T sequence, N visual tokens, K kept, M = N - K candidates, D width, H heads, L layers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from eos.errors import ConfigError

IGNORED = -100  # label of positions without a loss, as in transformers


@dataclass(frozen=True)
class Tokens:
    """Visual tokens on their way through the model.

    Attributes:
        states: hidden states, ``[..., N, D]``.
        positions: where each token stood in the full sequence, ``[..., N]``, ascending.
    """

    states: Tensor
    positions: Tensor

    def __post_init__(self) -> None:
        if self.states.shape[:-1] != self.positions.shape:
            raise ConfigError(
                "expected positions of the shape of states without its last axis; found states "
                f"{[*self.states.shape]} and positions {[*self.positions.shape]}"
            )

    def __len__(self) -> int:
        """Count the tokens of each sample, N."""
        return self.positions.shape[-1]


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
