"""SparseVLM (arXiv 2410.04417): its counts, its token recycling, and SparseVLM+'s score.

What the published code does in layers 2, 6 and 15, as functions of plain tensors. Raters are chosen
in `eos.operator.scorers`, the top-k in `eos.operator.select`; this file holds what happens to the
tokens outside the top-k (v1, v1.5) and how v2 corrects the attention it ranks by.
"""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.tokens import take

VISUAL_TOKENS = 576  # of LLaVA-1.5, which all published counts are for
STAGE_LAYERS = (2, 6, 15)  # tokens are reduced after these layers
NOISE_SCALE = 1e-6  # of the density: it decides between pool tokens that tie, and only those

STAGES_V1: dict[int, list[int]] = {
    192: [300, 200, 110],
    128: [303, 110, 36],
    96: [238, 48, 26],
    64: [66, 30, 17],
}
STAGES_V2: dict[int, list[int]] = {
    192: [300, 200, 118],
    128: [238, 108, 60],
    96: [246, 54, 28],
    64: [66, 34, 20],
}


def pool_size(pruned: int) -> int:
    """Count the pruned tokens that are recycled."""
    return int(0.3 * pruned) + 1


def cluster_count(pool: int) -> int:
    """Count the tokens that ``pool`` recycled ones are merged into."""
    return int(pool / 10) + 1


def v1_counts(budget: int) -> list[tuple[int, int]]:
    """List (kept, clusters) of each stage of v1 and v1.5 on 576 visual tokens."""
    if budget not in STAGES_V1:
        raise ConfigError(f"expected a budget in {sorted(STAGES_V1)}, found {budget}")
    counts: list[tuple[int, int]] = []
    tokens = VISUAL_TOKENS
    for top in STAGES_V1[budget]:
        kept = min(top, tokens - 1)
        clusters = cluster_count(pool_size(tokens - kept))
        counts.append((kept, clusters))
        tokens = kept + clusters
    return counts


def equal_tokens(schedule: Sequence[int]) -> float:
    """Average the visual tokens left *after* each layer: SparseVLM's logged "Equal Tokens".

    ``schedule`` is N_0 … N_L as in `eos.space.cost`. The layers that reduce are counted at their
    reduced size, so this is less than `eos.space.cost.mean_tokens`, the number entering a layer.
    """
    return sum(schedule[1:]) / (len(schedule) - 1)


def recycle(candidates: Tensor, scores: Tensor, *, noise: Tensor | None = None) -> Tensor:
    """Merge the best of the pruned tokens into a few (v1 and v1.5).

    Args:
        candidates: pruned tokens, ``[B, P, D]``.
        scores: their importance, ``[B, P]``; the highest `pool_size` of them form the pool.
        noise: uniform on [0, 1), ``[B, pool]`` in the pool's order (descending score). Upstream
            draws it anew each time; ``None`` draws none, and the earlier of tied tokens wins.

    Returns:
        Unweighted cluster means, ``[B, C, D]``, in descending order of their centres' prominence.
    """
    pruned = candidates.shape[1]
    if pruned == 0 or scores.shape != candidates.shape[:2]:
        raise ConfigError(
            "expected candidates [B, P, D] with P > 0 and scores [B, P]; found "
            f"{[*candidates.shape]} and {[*scores.shape]}"
        )
    pool = take(candidates, _highest(scores, pool_size(pruned)))
    if noise is not None and noise.shape != pool.shape[:2]:
        raise ConfigError(f"expected noise {[*pool.shape[:2]]}, found {[*noise.shape]}")
    member = torch.nn.functional.one_hot(_clusters(pool, noise)).to(pool.dtype)  # [B, pool, C]
    return member.mT @ pool / member.sum(dim=1).unsqueeze(-1)


def rope_gravity(cos: Tensor, sin: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Compute what attention owes to position alone (v2): RoPE(1)·RoPE(1)ᵀ / √E.

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


def corrected_score(
    attention: Tensor, gravity: Tensor, rater_mask: Tensor, *, heads: int = 14
) -> Tensor:
    """Score visual tokens by the gravity-corrected attention of the strongest heads (v2).

    Args:
        attention: probabilities of the text rows on the visual tokens, ``[B, H, R, N]``.
        gravity: from `rope_gravity`, ``[B, R, N]``.
        rater_mask: which rows rate, ``[B, R]``; at least one a sample.
        heads: how many heads count: those with the largest corrected sum over raters and tokens.

    Returns:
        Mean over the counted heads and the raters, ``[B, N]``.
    """
    if heads > attention.shape[1]:
        raise ConfigError(
            f"expected at least {heads} attention heads, found {attention.shape[1]}; ask for fewer"
        )
    if not bool(rater_mask.any(dim=-1).all()):
        raise ConfigError("expected a text rater in every sample, found none; use a longer prompt")
    rates = rater_mask[:, None, :, None]
    received = torch.where(rates, attention / gravity.unsqueeze(1), 0.0).sum(dim=2)  # [B, H, N]
    strongest = take(received, _highest(received.sum(dim=-1), heads))
    return strongest.mean(dim=1) / rater_mask.sum(dim=-1, keepdim=True)


def _clusters(pool: Tensor, noise: Tensor | None) -> Tensor:
    """Assign each pool token to a density peak (DPC-kNN), ``[B, pool]``."""
    tokens, width = pool.shape[1:]
    count = cluster_count(tokens)
    distance = torch.cdist(pool.float(), pool.float()) / sqrt(width)
    # a token is among its own neighbours: with two, mutual nearest neighbours tie in density
    nearest = distance.topk(count, dim=-1, largest=False).values
    density = torch.exp(-nearest.square().mean(dim=-1))
    if noise is not None:
        density = density + NOISE_SCALE * noise
    denser = density.unsqueeze(1) > density.unsqueeze(2)
    farthest = distance.amax(dim=(1, 2), keepdim=True)
    separation = torch.where(denser, distance, farthest).amin(dim=-1)
    centres = _highest(separation * density, count)
    assigned = take(distance, centres).argmin(dim=1)
    own = torch.arange(count, device=pool.device).expand_as(centres)
    return assigned.scatter(1, centres, own)  # a centre stays its own, even beside an equal token


def _highest(scores: Tensor, count: int) -> Tensor:
    """Index the ``count`` highest scores ``[..., N]`` in descending order, first of ties first."""
    return scores.argsort(dim=-1, descending=True, stable=True)[..., :count]
