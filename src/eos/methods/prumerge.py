"""PruMerge and PruMerge+ (arXiv 2403.15388): keep what the class token looks at, add its likes.

One sample at a time, as upstream: the adaptive count differs between images. Decides the tokens
from the vision tower's class attention and keys; the two fixed forms are those of the training code
and of DivPrune's fork. What upstream does by accident is done here too, and said where.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.methods import Method, Preset
from eos.operator.combine import Combined, OwnOperator, in_front, vision_of
from eos.operator.operate import Omega
from eos.operator.scorers import Evidence
from eos.operator.select import highest

NEIGHBOURS = 32  # tokens that each kept one is enriched with
ODD = "an odd budget, since PruMerge+ makes 2k + 1 tokens"


@dataclass(frozen=True)
class PruMerged:
    """Tokens after PruMerge.

    Attributes:
        states: the kept tokens, enriched, and one more for all pruned tokens, ``[K + 1, D]``.
        kept: indices of the kept tokens, ``[K]``, in the order of ``states``: by falling attention,
            then (PruMerge+) the spatial samples. PruMerge+ of a fixed count may hold duplicates.
    """

    states: Tensor
    kept: Tensor


def odd(budget: int) -> int:
    """Find the smallest number from ``budget`` on that PruMerge+ can make."""
    return budget + 1 - budget % 2


def prumerged(evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None) -> Combined:
    """Merge by class attention before the projector (PruMerge, arXiv 2403.15388)."""
    return _prumerged(evidence, scores, lambda *image: prumerge(*image, keep=keep - 1))


def prumerged_plus(
    evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None
) -> Combined:
    """Merge by class attention and spatial samples (PruMerge+); 2k + 1 tokens come out."""
    if keep != odd(keep):
        raise ConfigError(f"expected {ODD}; found {keep}")
    return _prumerged(evidence, scores, lambda *image: prumerge_plus(*image, keep=keep // 2))


def _prumerged(
    evidence: Evidence, scores: Tensor, merge: Callable[[Tensor, Tensor, Tensor], PruMerged]
) -> Combined:
    vision = vision_of(evidence)
    images = [
        merge(states[1:], keys[1:], class_attention(queries, keys)).states
        for states, queries, keys in zip(vision.states, *vision.last, strict=True)
    ]
    return in_front(vision.project(torch.stack(images)), scores)


def class_attention(queries: Tensor, keys: Tensor) -> Tensor:
    """Compute the class token's attention on the patches as one head of full width, ``[N]``.

    ``queries`` and ``keys`` ``[1 + N, C]`` are those of the last layer, heads concatenated.
    """
    logits = queries[:1] @ keys.mT * queries.shape[-1] ** -0.5
    return torch.softmax(logits, dim=-1)[0, 1:]


def prumerge(
    states: Tensor, keys: Tensor, attention: Tensor, *, keep: int | None = None
) -> PruMerged:
    """Keep the tokens with the most class attention; return one token more than are kept.

    Args:
        states: patches, ``[N, D]``.
        keys: their keys, heads concatenated, ``[N, C]``.
        attention: from `class_attention`, ``[N]``.
        keep: how many tokens to keep; ``None``: as many as are outliers of ``attention``. Without
            outliers a single token is left, the one for all pruned tokens.
    """
    kept = _top(attention, _outliers(attention) if keep is None else keep)
    return _merge(states, keys, attention, kept)


def prumerge_plus(
    states: Tensor, keys: Tensor, attention: Tensor, *, keep: int | None = None
) -> PruMerged:
    """Keep spatial samples besides the tokens with the most class attention.

    Arguments as of `prumerge`. Adaptive: samples are about three times as dense as outliers, never
    the last token, and skip what is kept already; if more than a sixth are outliers, all tokens but
    that last one stay. Fixed: ``keep`` top tokens and ``keep`` samples, even if they coincide; then
    as many pruned tokens of the lowest indices are lost to all merging. 2 ``keep`` + 1 tokens come
    out, and most values of ``keep`` are refused because upstream cannot place that many samples.
    """
    count = _outliers(attention) if keep is None else keep
    if count == 0:
        raise ConfigError(
            "expected a class attention with outliers, found none, for which PruMerge+ is not "
            "defined; set keep"
        )
    top, last = _top(attention, count), len(attention) - 1
    spacing = int(1 / (count / len(attention)))
    if keep is None:
        # fewer than a quarter of any values are outliers, so the spacing is never below 1
        samples = torch.arange(0, last, int(spacing / 3), device=top.device)
        samples = samples[~torch.isin(samples, top)]
    else:
        samples = torch.arange(int(spacing / 2), last, spacing, device=top.device)
        if len(samples) != keep:
            raise ConfigError(
                f"expected a count whose samples, one every {spacing} tokens, are as many: found "
                f"{len(samples)} samples for {keep}; divisors of {len(attention)} work"
            )
    return _merge(states, keys, attention, torch.cat([top, samples]))


def _outliers(attention: Tensor) -> int:
    """Count the values more than 1.5 interquartile ranges above the third quartile."""
    low, high = torch.quantile(attention.float(), attention.new_tensor([0.25, 0.75]).float())
    return int((attention > high + 1.5 * (high - low)).sum())


def _top(attention: Tensor, count: int) -> Tensor:
    if not 0 <= count <= len(attention):
        raise ConfigError(f"expected to keep at most {len(attention)} tokens, found {count}")
    return highest(attention, count)


def _merge(states: Tensor, keys: Tensor, attention: Tensor, kept: Tensor) -> PruMerged:
    """Add to each kept token its likes, weighted by attention, and one token for the pruned."""
    marked = torch.zeros_like(attention, dtype=torch.bool).index_fill(0, kept, True)
    # upstream counts duplicates as kept, which loses as many of the first pruned tokens
    duplicates = len(kept) - int(marked.sum())
    pruned = (~marked).nonzero().flatten()[duplicates:]
    others = torch.cat([kept, pruned])
    if len(others) <= NEIGHBOURS:
        raise ConfigError(f"expected more than {NEIGHBOURS} tokens, found {len(others)}")
    unit = torch.nn.functional.normalize(keys, dim=-1)
    likeness = unit[kept] @ unit[others].mT
    likeness.fill_diagonal_(-torch.inf)  # others begin with the kept: not itself, but its duplicate
    nearest = likeness.topk(NEIGHBOURS, dim=-1).indices  # [K, NEIGHBOURS]
    weights = torch.zeros_like(likeness).scatter(1, nearest, attention[others][nearest])
    enriched = states[kept] + weights @ states[others]
    rest = attention[pruned] @ states[pruned]
    return PruMerged(torch.cat([enriched, rest.unsqueeze(0)]), kept)


PRUMERGE = OwnOperator("prumerge", prumerged, needs=("vision",))
PRUMERGE_PLUS = OwnOperator(
    "prumerge+", prumerged_plus, needs=("vision",), nearest_budget=odd, budgets=ODD
)
PUBLISHED = {192: (192,), 128: (128,), 64: (64,)}
METHOD = Method(
    paper="arXiv 2403.15388",
    title="LLaVA-PruMerge: Adaptive Token Reduction for Efficient Large Multimodal Models",
    operators=(PRUMERGE, PRUMERGE_PLUS),
    presets=(
        Preset(
            name="prumerge+-original",
            what="PruMerge with spatial samples: 2k + 1 tokens, for the few k that its code can "
            "place.",
            score="cls-attention",
            layers=(-1,),
            published={193: (193,), 145: (145,), 129: (129,), 65: (65,)},
            positions="reindex",
            operator=PRUMERGE_PLUS,
        ),
        Preset(
            name="prumerge+",
            what="Keep by class attention before the decoder and merge the rest softly into it, "
            "norms preserved.",
            score="cls-attention",
            layers=(-1,),
            published=PUBLISHED,
            positions="reindex",
            operator=Omega(gamma=1.0, tau=0.1, theta=-inf, rho=0.0, nu=1.0),
        ),
        Preset(
            name="prumerge-original",
            what="Top class attention, each enriched by its 32 likes, and one token for all "
            "pruned.",
            score="cls-attention",
            layers=(-1,),
            published=PUBLISHED,
            positions="reindex",
            operator=PRUMERGE,
        ),
    ),
)
