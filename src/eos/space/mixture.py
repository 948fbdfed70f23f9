"""Mixture: scores that weigh several scorers, written ``0.7*diversity+0.3*all-text``.

Scorers have different units, so a mixture adds ranks, not scores: the share of tokens that a scorer
places below a token, from 0 to 1, times the scorer's weight. A plain name is a mixture of one.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.methods.registry import SCORERS
from eos.operator.scorers import Scorer

DECIMALS = 3  # of a weight in a name


def components(score: str) -> dict[str, float]:
    """Read a score's name as scorers and their weights, which sum to 1.

    >>> components("diversity")
    {'diversity': 1.0}
    >>> components("3*diversity + 1*all-text")
    {'diversity': 0.75, 'all-text': 0.25}
    """
    parts: dict[str, float] = {}
    for term in score.split("+"):
        number, star, name = term.rpartition("*")
        parts[_known(name.strip(), score)] = _weight(number, score) if star else 1.0
    total = sum(parts.values())
    if len(parts) < score.count("+") + 1 or not total > 0:
        raise ConfigError(
            f"expected different scorers with positive weights, as in 0.7*diversity+0.3*all-text; "
            f"found {score!r}"
        )
    return {name: weight / total for name, weight in parts.items()}


def mixture(weights: Mapping[str, float]) -> str:
    """Write scorers and weights as a score's name; weights that round to 0 are left out.

    >>> mixture({"diversity": 0.7, "all-text": 0.3}), mixture({"diversity": 1.0, "all-text": 0.0})
    ('0.7*diversity+0.3*all-text', 'diversity')
    """
    total = sum(weights.values())
    rounded = {name: round(weight / total, DECIMALS) for name, weight in weights.items()}
    present = {name: weight for name, weight in rounded.items() if weight > 0}
    if len(present) == 1:
        return next(iter(present))
    return "+".join(f"{weight:g}*{name}" for name, weight in present.items())


def scorers_of(score: str) -> list[Scorer]:
    """List the scorers that a score mixes."""
    return [SCORERS[name] for name in components(score)]


def add_ranks(scores: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Mix scores ``[B, N]`` of several scorers by their ranks, ``[B, N]``; ties share a rank."""
    ranks = [weight * _rank(score) for score, weight in zip(scores, weights, strict=True)]
    return torch.stack(ranks).sum(dim=0)


def _rank(scores: Tensor) -> Tensor:
    """Share of tokens with a lower score, ``[B, N]``, in float32."""
    scores = scores.float().contiguous()
    below = torch.searchsorted(scores.sort(dim=-1).values, scores)
    return below.float() / scores.shape[-1]


def _known(name: str, score: str) -> str:
    if name not in SCORERS:
        close = get_close_matches(name, SCORERS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"expected one of {', '.join(SCORERS)}, or a mixture of them; found {score!r}{hint}"
        )
    return name


def _weight(number: str, score: str) -> float:
    try:
        weight = float(number)
    except ValueError:
        weight = -1.0
    if not 0 < weight < float("inf"):
        raise ConfigError(f"expected a positive weight before '*'; found {number!r} in {score!r}")
    return weight
