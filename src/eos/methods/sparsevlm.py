"""SparseVLM (arXiv 2410.04417): its counts, its token recycling, and SparseVLM+'s score.

What the published code does in layers 2, 6 and 15. Raters, which are the default scorer of EOS, and
the attention that position alone explains are computed in `eos.operator.scorers`; this file holds
what happens to the tokens outside the top-k (v1, v1.5) and how v2 corrects the attention it ranks
by.
"""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.methods import TOKENS, Method, Preset
from eos.operator.combine import Combined, OwnOperator
from eos.operator.scorers import Evidence, Scorer, given
from eos.operator.select import highest, select
from eos.tokens import take

STAGE_LAYERS = (2, 6, 15)  # tokens are reduced after these layers
STRONG_HEADS = 14  # that SparseVLM+ averages, of 32
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


def recycled_count(pruned: int) -> int:
    """Count the tokens that recycling makes of ``pruned`` ones."""
    return cluster_count(pool_size(pruned)) if pruned else 0


def v1_counts(budget: int) -> list[tuple[int, int]]:
    """List (kept, clusters) of each stage of v1 and v1.5 on 576 visual tokens."""
    if budget not in STAGES_V1:
        raise ConfigError(f"expected a budget in {sorted(STAGES_V1)}, found {budget}")
    counts: list[tuple[int, int]] = []
    tokens = TOKENS
    for top in STAGES_V1[budget]:
        kept = min(top, tokens - 1)
        clusters = recycled_count(tokens - kept)
        counts.append((kept, clusters))
        tokens = kept + clusters
    return counts


def equal_tokens(schedule: Sequence[int]) -> float:
    """Average the visual tokens left *after* each layer: SparseVLM's logged "Equal Tokens".

    ``schedule`` is N_0 … N_L as in `eos.space.cost`. The layers that reduce are counted at their
    reduced size, so this is less than `eos.space.cost.mean_tokens`, the number entering a layer.
    """
    return sum(schedule[1:]) / (len(schedule) - 1)


def corrected_attention(evidence: Evidence) -> Tensor:
    """Correct attention for position and trust the strongest heads (SparseVLM+)."""
    attention = given(evidence.attention, "attention")
    rows = evidence.rows
    if rows is None:
        rows = torch.ones_like(attention[:, 0, :, 0], dtype=torch.bool)
    heads = min(STRONG_HEADS, attention.shape[1])
    return corrected_score(attention, given(evidence.gravity, "gravity"), rows, heads=heads)


def recycled(evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None) -> Combined:
    """Keep the best and merge the best of the rest into a few (SparseVLM v1, arXiv 2410.04417)."""
    tokens = scores.shape[-1]
    fits = [k for k in range(1, keep + 1) if k + recycled_count(tokens - k) == keep]
    if not fits:
        raise ConfigError(
            f"expected a count that recycling {tokens} tokens can reach; found {keep}"
        )
    kept = fits[-1]
    chosen = select(scores, kept)
    clusters = recycle(take(evidence.states, chosen.dropped), scores.gather(1, chosen.dropped))
    # merged tokens come after the kept ones, in the last places that became free
    free = chosen.dropped[:, -clusters.shape[1] :]
    places = torch.cat([chosen.kept, free], dim=1).sort(dim=1).values
    return Combined(torch.cat([take(evidence.states, chosen.kept), clusters], dim=1), places)


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
    pool = take(candidates, highest(scores, pool_size(pruned)))
    if noise is not None and noise.shape != pool.shape[:2]:
        raise ConfigError(f"expected noise {[*pool.shape[:2]]}, found {[*noise.shape]}")
    member = torch.nn.functional.one_hot(_clusters(pool, noise)).to(pool.dtype)  # [B, pool, C]
    return member.mT @ pool / member.sum(dim=1).unsqueeze(-1)


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
            f"expected at least {heads} attention heads, found {attention.shape[1]}; score by fewer"
        )
    if not bool(rater_mask.any(dim=-1).all()):
        raise ConfigError("expected a text rater in every sample, found none; use a longer prompt")
    rates = rater_mask[:, None, :, None]
    received = torch.where(rates, attention / gravity.unsqueeze(1), 0.0).sum(dim=2)  # [B, H, N]
    strongest = take(received, highest(received.sum(dim=-1), heads))
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
    centres = highest(separation * density, count)
    assigned = take(distance, centres).argmin(dim=1)
    own = torch.arange(count, device=pool.device).expand_as(centres)
    return assigned.scatter(1, centres, own)  # a centre stays its own, even beside an equal token


RECYCLE = OwnOperator("recycle", recycled)
METHOD = Method(
    paper="arXiv 2410.04417",
    title="SparseVLM: Visual Token Sparsification for Efficient Vision-Language Model Inference",
    scorers={"corrected-raters": Scorer(corrected_attention, rows="raters", needs=("gravity",))},
    operators=(RECYCLE,),
    presets=(
        Preset(
            name="sparsevlm-v1-original",
            what="Version 1 as its code does it: top-k, the best of the rest recycled into "
            "clusters, positions re-indexed.",
            score="text-raters",
            layers=STAGE_LAYERS,
            published={label: [sum(both) for both in v1_counts(label)] for label in STAGES_V1},
            positions="reindex",
            operator=RECYCLE,
        ),
        Preset(
            name="sparsevlm-v1",
            what="Prune by text raters with version 1's top-k counts, without recycling. Labels "
            "are the authors' 'Equal Tokens'.",
            score="text-raters",
            layers=STAGE_LAYERS,
            published=STAGES_V1,
        ),
        Preset(
            name="sparsevlm-v2-original",
            what="Version 2 as its code does it: attention corrected for position, the strongest "
            "14 heads.",
            score="corrected-raters",
            layers=STAGE_LAYERS,
            published=STAGES_V2,
        ),
        Preset(
            name="sparsevlm-v2",
            what="Prune by text raters with the counts of version 2 (SparseVLM+). Labels are the "
            "authors' 'Equal Tokens'.",
            score="text-raters",
            layers=STAGE_LAYERS,
            published=STAGES_V2,
        ),
    ),
)
