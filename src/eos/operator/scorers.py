"""Scorers: how much each visual token matters, from evidence a layer has anyway.

A scorer is one function from `Evidence` to scores ``[B, N]``, higher meaning keep, and one entry,
which also names the query rows of the attention it needs: no others are computed. `GENERIC` holds
those that several methods use; a scorer of one method is in that method's file in `eos.methods`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.tokens import Vision, take

Rows: TypeAlias = Literal["raters", "last", "text", "none"]
Need: TypeAlias = Literal["gravity", "keys", "text", "vision"]


@dataclass(frozen=True)
class Evidence:
    """What a layer provides about its visual tokens.

    Attributes:
        states: hidden states of the visual tokens, ``[B, N, D]``.
        attention: attention probabilities of the scorer's query rows on them, ``[B, H, R, N]``.
        rows: which of the R rows count, ``[B, R]``; None if all do.
        keys: their keys, ``[B, H, N, D/H]``.
        gravity: what that attention owes to position alone, ``[B, R, N]``.
        cls_attention: attention of the vision tower's class token on them, ``[B, H, N]``.
        text: normed states of all tokens ``[B, T, D]``, the L1 norms of their keys ``[B, T]``
            (-inf where a token is no text), and normed states of the visual ones ``[B, N, D]``.
        keep: how many tokens will be kept.
        vision: outputs of the vision tower for one image, before the projector.
        seed: of scorers that draw.
    """

    states: Tensor
    attention: Tensor | None = None
    rows: Tensor | None = None
    keys: Tensor | None = None
    gravity: Tensor | None = None
    cls_attention: Tensor | None = None
    text: tuple[Tensor, Tensor, Tensor] | None = None
    keep: int = 1
    vision: Vision | None = None
    seed: int = 0


@dataclass(frozen=True)
class Scorer:
    """A scoring function, and what it looks at.

    Attributes:
        score: evidence in, scores ``[B, N]`` out.
        rows: the query rows whose attention it needs.
        ahead: whether it reads the next layer's attention instead of that of the last one run.
        needs: what else of `Evidence` it uses.
        picks: whether it orders only the tokens that it would keep, all others being equal.
    """

    score: Callable[[Evidence], Tensor]
    rows: Rows = "none"
    ahead: bool = False
    needs: tuple[Need, ...] = ()
    picks: bool = False


def text_raters(visual: Tensor, text: Tensor, *, counted: Tensor | None = None) -> Tensor:
    """Pick the text tokens that rate visual ones (SparseVLM, arXiv 2410.04417): ``[B, T]``.

    A rater is a text token on which the visual tokens, ``visual`` ``[B, N, D]`` against ``text``
    ``[B, T, D]``, put more than the mean share. ``counted`` ``[B, T]`` masks the
    T that are text at all.
    """
    closeness = (visual @ text.mT).float()
    if counted is None:
        counted = torch.ones(text.shape[:-1], dtype=torch.bool, device=text.device)
    share = torch.softmax(closeness.masked_fill(~counted[:, None], -torch.inf), dim=-1).mean(dim=-2)
    return counted & (share > 1.0 / counted.sum(dim=-1, keepdim=True))


def rope_gravity(cos: Tensor, sin: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Compute what attention owes to position alone (SparseVLM+): RoPE(1)·RoPE(1)ᵀ / √E.

    Args:
        cos: of the rotary embedding at every position, ``[B, T, E]``.
        sin: likewise, ``[B, T, E]``.
        rows: indices of the query rows, ``[B, R]``.
        columns: indices of the key columns, ``[B, N]``.

    Returns:
        The logits of all-ones queries and keys, ``[B, R, N]``. They are negative at some distances
        if the head is small: 5-9% of all pairs at E = 16, none within 640 tokens at E = 128.
    """
    half = cos.shape[-1] // 2
    ones = torch.cat([cos[..., :half] - sin[..., :half], cos[..., half:] + sin[..., half:]], dim=-1)
    return take(ones, rows) @ take(ones, columns).mT / sqrt(cos.shape[-1])


def attention_received(evidence: Evidence) -> Tensor:
    """Average the attention of the scorer's query rows, over rows and heads."""
    attention = given(evidence.attention, "attention").mean(dim=1)
    if evidence.rows is None:
        return attention.mean(dim=1)
    counted = attention * evidence.rows.unsqueeze(-1)
    return counted.sum(dim=1) / evidence.rows.sum(dim=1, keepdim=True).clamp_min(1)


def cls_attention(evidence: Evidence) -> Tensor:
    """Average the vision tower's class attention over heads (FasterVLM, arXiv 2412.01818)."""
    return given(evidence.cls_attention, "cls_attention").mean(dim=1)


def key_norm(evidence: Evidence) -> Tensor:
    """Measure the L1 norm of the keys, heads concatenated (DART's pivots, arXiv 2502.11494)."""
    return given(evidence.keys, "keys").abs().sum(dim=(1, 3))


def dissimilarity(evidence: Evidence) -> Tensor:
    """Prefer tokens unlike the others: minus the mean cosine to all of them."""
    unit = torch.nn.functional.normalize(evidence.states.float(), dim=-1)
    return -(unit @ unit.mean(dim=-2).unsqueeze(-1)).squeeze(-1)


def ranked(picks: Tensor, tokens: int) -> Tensor:
    """Turn picks ``[B, K]``, best first, into scores ``[B, N]``."""
    falling = torch.arange(picks.shape[1], 0, -1, device=picks.device, dtype=torch.float32)
    blank = torch.zeros(len(picks), tokens, device=picks.device)
    return blank.scatter(1, picks, falling.expand(picks.shape))


T = TypeVar("T")


def given(value: T | None, name: str) -> T:
    """Get an optional part of `Evidence`, or refuse with its name."""
    if value is None:
        raise ConfigError(f"this scorer needs {name}, which the model did not provide; use another")
    return value


GENERIC: dict[str, Scorer] = {
    "text-raters": Scorer(attention_received, rows="raters"),
    "all-text": Scorer(attention_received, rows="text"),
    "cls-attention": Scorer(cls_attention, needs=("vision",)),
    "key-norm": Scorer(key_norm, needs=("keys",)),
    "dissimilarity": Scorer(dissimilarity),
}
