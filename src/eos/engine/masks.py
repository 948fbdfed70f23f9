"""Masks: cut attention masks to the tokens a layer has, whatever form the model made them in.

A mask is None (causal, nothing padded), 2-D padding ``[B, T]``, or 4-D ``[B or 1, 1, Q, T]``,
boolean or additive. Cutting takes rows and columns of what the model gave; a mask is rebuilt only
where the model could not have known the layer's length.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def cut(mask: Tensor | None, slots: Tensor) -> Tensor | None:
    """Keep the rows and columns ``slots`` ``[B, T']`` of a prompt's mask."""
    if mask is None:
        return None
    if mask.ndim == 2:
        return mask.take_along_dim(slots.to(mask.device), dim=1)
    return cut_columns(cut_rows(mask, slots), slots, total=mask.shape[-1])


def cut_rows(mask: Tensor, rows: Tensor) -> Tensor:
    """Keep the rows ``[B, R]`` of a 4-D mask."""
    return mask.take_along_dim(rows.to(mask.device)[:, None, :, None], dim=2)


def cut_columns(mask: Tensor, columns: Tensor, *, total: int) -> Tensor:
    """Keep the columns ``[B, C]``, counted in a text of ``total`` tokens, of a mask.

    A mask narrower than the text, as sliding layers have, ends where the text ends; columns before
    it are masked.
    """
    index = columns.to(mask.device) - (total - mask.shape[-1])
    if mask.ndim == 2:
        return mask.take_along_dim(index, dim=1)
    index = index[:, None, None]
    shown = mask.take_along_dim(index.clamp_min(0), dim=3)
    return shown.masked_fill(index < 0, _closed(mask))


def hide(mask: Tensor, unseen: Tensor) -> Tensor:
    """Mask the columns ``unseen`` ``[B, C]`` for every query."""
    unseen = unseen.to(mask.device)
    if mask.ndim == 2:
        return mask.masked_fill(unseen, 0)
    return mask.masked_fill(unseen[:, None, None], _closed(mask))


def rebuild(
    like: Tensor,
    valid: Tensor,
    *,
    new: int,
    later: int = 0,
    window: int | None = None,
    images: Tensor | None = None,
) -> Tensor:
    """Make the mask of the last ``new`` tokens of a text: a prompt and ``later`` more tokens.

    ``valid`` ``[B, T]`` marks the prompt's tokens that are no padding; ``like`` gives the form, 2-D
    or 4-D, and dtype; in a sliding layer a token sees ``window`` tokens back, itself included.
    ``images`` ``[B, new]`` marks visual tokens whose image attends to itself in both directions.
    """
    known = torch.cat([valid, valid.new_ones(len(valid), later)], dim=1)
    if like.ndim == 2:
        return known.to(like.dtype)
    columns = torch.arange(known.shape[1], device=known.device)
    back = columns[-new:, None] - columns
    seen = (back >= 0) if window is None else (back >= 0) & (back < window)
    allowed = known[:, None, None] & seen
    if images is not None:
        started = images & ~pad(images, (1, 0))[:, :-1]
        image = torch.where(images, started.cumsum(dim=1), 0)
        alike = (image[:, :, None] == image[:, None]) & images[:, None]
        allowed[..., -new:] |= alike[:, None]
    if like.dtype == torch.bool:
        return allowed
    blank = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device)
    return blank.masked_fill(~allowed, _closed(like))


def _closed(mask: Tensor) -> float:
    """The value that hides a column, in a 4-D mask."""
    return False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
