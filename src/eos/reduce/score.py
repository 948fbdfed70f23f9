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
        keys: their keys, ``[B, H, N, D/H]``.
        cls_attention: attention of the vision tower's class token on them, ``[B, H, N]``.
        seed: of scorers that draw.
    """

    states: Tensor
    attention: Tensor | None = None
    keys: Tensor | None = None
    cls_attention: Tensor | None = None
    seed: int = 0


@dataclass(frozen=True)
class Scorer:
    """A scoring function, and the query rows whose attention it needs."""

    score: Callable[[Evidence], Tensor]
    rows: Rows = "none"


def text_raters(visual: Tensor, text: Tensor) -> Tensor:
    """Pick the text tokens worth asking (SparseVLM, arXiv 2410.04417), a mask ``[B, T]``.

    A rater is a text token on which the visual tokens, ``visual`` ``[B, N, D]`` against ``text``
    ``[B, T, D]``, put more than the mean share.
    """
    share = torch.softmax(visual @ text.mT, dim=-1).mean(dim=-2)
    return share > share.mean(dim=-1, keepdim=True)


def attention_received(evidence: Evidence) -> Tensor:
    """Average what the asked query rows attend to, over rows and heads."""
    return _given(evidence.attention, "attention").mean(dim=(1, 2))


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
    "all-text": Scorer(attention_received, rows="text"),
    "cls-attention": Scorer(cls_attention),
    "key-norm": Scorer(key_norm),
    "dissimilarity": Scorer(dissimilarity),
    "random": Scorer(random_score),
}
