"""Score: how much each visual token matters, from evidence a layer has anyway.

A scorer is one function from `Evidence` to scores ``[B, N]``, higher meaning keep, and one entry in
`SCORERS`, which also says which query rows of the attention it looks at: nobody computes more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from eos.errors import ConfigError

Rows: TypeAlias = Literal["raters", "last", "text", "none"]


@dataclass(frozen=True)
class Evidence:
    """What a layer can tell about its visual tokens.

    Attributes:
        states: hidden states of the visual tokens, ``[B, N, D]``.
        attention: attention probabilities of the asked query rows on them, ``[B, H, R, N]``.
        rows: which of the R rows count, ``[B, R]``; None if all do.
        keys: their keys, ``[B, H, N, D/H]``.
        cls_attention: attention of the vision tower's class token on them, ``[B, H, N]``.
        seed: of scorers that draw.
    """

    states: Tensor
    attention: Tensor | None = None
    rows: Tensor | None = None
    keys: Tensor | None = None
    cls_attention: Tensor | None = None
    seed: int = 0


@dataclass(frozen=True)
class Scorer:
    """A scoring function, and what it looks at.

    Attributes:
        score: evidence in, scores ``[B, N]`` out.
        rows: the query rows whose attention it needs.
        ahead: whether it asks the layer that comes next instead of the one that has just run.
    """

    score: Callable[[Evidence], Tensor]
    rows: Rows = "none"
    ahead: bool = False


def text_raters(visual: Tensor, text: Tensor, *, counts: Tensor | None = None) -> Tensor:
    """Pick the text tokens worth asking (SparseVLM, arXiv 2410.04417), a mask ``[B, T]``.

    A rater is a text token on which the visual tokens, ``visual`` ``[B, N, D]`` against ``text``
    ``[B, T, D]``, put more than the mean share. ``counts`` ``[B, T]`` says which of the T are text
    at all.
    """
    closeness = (visual @ text.mT).float()
    if counts is None:
        counts = torch.ones(text.shape[:-1], dtype=torch.bool, device=text.device)
    share = torch.softmax(closeness.masked_fill(~counts[:, None], -torch.inf), dim=-1).mean(dim=-2)
    return counts & (share > 1.0 / counts.sum(dim=-1, keepdim=True))


def attention_received(evidence: Evidence) -> Tensor:
    """Average what the asked query rows attend to, over rows and heads."""
    attention = _given(evidence.attention, "attention").mean(dim=1)
    if evidence.rows is None:
        return attention.mean(dim=1)
    counted = attention * evidence.rows.unsqueeze(-1)
    return counted.sum(dim=1) / evidence.rows.sum(dim=1, keepdim=True).clamp_min(1)


def cls_attention(evidence: Evidence) -> Tensor:
    """Average the vision tower's class attention over heads (FasterVLM, arXiv 2412.01818)."""
    return _given(evidence.cls_attention, "cls_attention").mean(dim=1)


def key_norm(evidence: Evidence) -> Tensor:
    """Measure the L1 norm of the keys, heads concatenated (DART's pivots, arXiv 2502.11494)."""
    return _given(evidence.keys, "keys").abs().sum(dim=(1, 3))


def dissimilarity(evidence: Evidence) -> Tensor:
    """Prefer tokens unlike the others: minus the mean cosine to all of them."""
    unit = torch.nn.functional.normalize(evidence.states.float(), dim=-1)
    return -(unit @ unit.mean(dim=-2).unsqueeze(-1)).squeeze(-1)


def random_score(evidence: Evidence) -> Tensor:
    """Draw one score a token, the same on every device for the same seed."""
    generator = torch.Generator().manual_seed(evidence.seed)
    drawn = torch.rand(evidence.states.shape[:-1], generator=generator)
    return drawn.to(evidence.states.device)


def _given(value: Tensor | None, name: str) -> Tensor:
    if value is None:
        raise ConfigError(f"this scorer needs {name}, which the model did not provide; use another")
    return value


SCORERS: dict[str, Scorer] = {
    "text-raters": Scorer(attention_received, rows="raters"),
    "last-query": Scorer(attention_received, rows="last"),
    "next-last-query": Scorer(attention_received, rows="last", ahead=True),
    "all-text": Scorer(attention_received, rows="text"),
    "cls-attention": Scorer(cls_attention),
    "key-norm": Scorer(key_norm),
    "dissimilarity": Scorer(dissimilarity),
    "random": Scorer(random_score),
}
