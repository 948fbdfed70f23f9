"""Scorers: how much each visual token matters, from evidence a layer has anyway.

A scorer is one function from `Evidence` to scores ``[B, N]``, higher meaning keep, and one entry in
`SCORERS`, which also names the query rows of the attention it needs: no others are computed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.operator.originals.dart import dart_keep
from eos.operator.originals.divprune import max_min_order
from eos.operator.originals.sparsevlm import corrected_score

PIVOTS = 4  # visual tokens that DART starts from
STRONG_HEADS = 14  # SparseVLM+ looks at as many, of 32
Rows: TypeAlias = Literal["raters", "last", "text", "none"]
Need: TypeAlias = Literal["gravity", "keys", "text", "vision"]


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

    def repeated(self, times: int) -> "Vision":
        """Repeat every image, as beam search repeats its prompts."""
        if times == 1:
            return self
        rows = (self.states, self.cls_attention, self.keys, *self.last)
        states, attention, keys, queries, last = (x.repeat_interleave(times, dim=0) for x in rows)
        return Vision(states, attention, keys, (queries, last), self.project)


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


def text_raters(visual: Tensor, text: Tensor, *, counts: Tensor | None = None) -> Tensor:
    """Pick the text tokens that rate visual ones (SparseVLM, arXiv 2410.04417): ``[B, T]``.

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


def corrected_attention(evidence: Evidence) -> Tensor:
    """Correct attention for position and trust the strongest heads (SparseVLM+)."""
    attention = _given(evidence.attention, "attention")
    rows = evidence.rows
    if rows is None:
        rows = torch.ones_like(attention[:, 0, :, 0], dtype=torch.bool)
    heads = min(STRONG_HEADS, attention.shape[1])
    return corrected_score(attention, _given(evidence.gravity, "gravity"), rows, heads=heads)


def diversity(evidence: Evidence) -> Tensor:
    """Rank tokens by farthest-point picking (DivPrune, arXiv 2503.02175)."""
    picks = max_min_order(evidence.states.float(), keep=evidence.keep)
    return _ranked(picks, evidence.states.shape[1])


def duplication(evidence: Evidence) -> Tensor:
    """Keep what resembles pivot tokens least (DART, arXiv 2502.11494)."""
    text, norms, visual = _given(evidence.text, "text")
    pivots = min(PIVOTS, evidence.keep)
    kept = dart_keep(
        key_norm(evidence), norms, visual, text, keep=evidence.keep, image_pivots=pivots
    )
    return _ranked(kept, evidence.states.shape[1])


def random_score(evidence: Evidence) -> Tensor:
    """Draw one score a token, the same in every sample and on every device for the same seed."""
    generator = torch.Generator().manual_seed(evidence.seed)
    drawn = torch.rand(evidence.states.shape[1], generator=generator)
    return drawn.to(evidence.states.device).expand(evidence.states.shape[:2])


def _ranked(picks: Tensor, tokens: int) -> Tensor:
    """Turn picks ``[B, K]``, best first, into scores ``[B, N]``."""
    falling = torch.arange(picks.shape[1], 0, -1, device=picks.device, dtype=torch.float32)
    blank = torch.zeros(len(picks), tokens, device=picks.device)
    return blank.scatter(1, picks, falling.expand(picks.shape))


T = TypeVar("T")


def _given(value: T | None, name: str) -> T:
    if value is None:
        raise ConfigError(f"this scorer needs {name}, which the model did not provide; use another")
    return value


SCORERS: dict[str, Scorer] = {
    "text-raters": Scorer(attention_received, rows="raters"),
    "last-query": Scorer(attention_received, rows="last"),
    "next-last-query": Scorer(attention_received, rows="last", ahead=True),
    "all-text": Scorer(attention_received, rows="text"),
    "corrected-raters": Scorer(corrected_attention, rows="raters", needs=("gravity",)),
    "cls-attention": Scorer(cls_attention, needs=("vision",)),
    "key-norm": Scorer(key_norm, needs=("keys",)),
    "diversity": Scorer(diversity, picks=True),
    "duplication": Scorer(duplication, needs=("keys", "text"), picks=True),
    "dissimilarity": Scorer(dissimilarity),
    "random": Scorer(random_score),
}
