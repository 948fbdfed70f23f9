"""Fidelity: does the surrogate gradient of a layer's compression predict how the loss changes?

The derivative of the loss in the compression g_l c_l, as the search computes it, is set against
what the deployed forward pass does (`slopes`). The order of layers and the signs decide where a
search moves; sizes, how it weighs the loss against its constraints.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Literal

from pydantic import Field

from eos.config import Artifact, Frozen
from eos.data.batches import Batch, Reader
from eos.engine.relaxation import Relaxation
from eos.errors import ConfigError
from eos.estimates import Estimate, estimate
from eos.evaluation.agreement import (
    Agreement,
    Pooled,
    agreement,
    certain,
    pooled,
    rank_error,
    total_error,
    weighted_mean,
)
from eos.evaluation.slopes import (
    Comparison,
    Measured,
    SlopeMethod,
    Slopes,
    measure_slopes,
    passes_of,
)
from eos.models.backbone import Backbone
from eos.space.step import DEFAULT_SCORER

FRACTIONS = (0.5, 0.2, 0.05)
BAND = 0.1  # of the visual tokens
SLOPE_METHODS: dict[str, SlopeMethod] = {
    "paper, states": Relaxation(selection="paper", through="states"),
    "paper, logits": Relaxation(selection="paper", through="logits"),
    "marginal, logits": Relaxation(selection="marginal", through="logits"),
    "rank, logits": Relaxation(selection="rank", through="logits"),
    f"rank, logits, band {BAND:g}": Relaxation(selection="rank", through="logits", band=BAND),
    "rank, logits, soft": Relaxation(selection="rank", through="logits", boundary="soft"),
    "measured": Measured(),
}
SlopesWatch = Callable[[Slopes], None]


class Level(Frozen):
    """One keep fraction: the layers' differences, and how each surrogate agrees with them."""

    keep_frac: float
    keep: int
    step: int
    difference: list[Estimate]
    certain: int
    methods: dict[str, Agreement]


class Fidelity(Artifact):
    """``fidelity.json``."""

    schema_: Literal["eos.fidelity/1"] = Field(default="eos.fidelity/1", alias="schema")
    backbone: str
    data: str
    score: str
    samples: int
    visual_tokens: int
    layers: list[int]
    levels: list[Level]
    pooled: dict[str, Pooled] = Field(default_factory=dict)


def measure_fidelity(
    backbone: Backbone,
    *,
    reader: Reader,
    batch: Batch,
    name: str = "any",
    fractions: Sequence[float] = FRACTIONS,
    methods: Mapping[str, SlopeMethod] | None = None,
    score: str = DEFAULT_SCORER,
    known: Sequence[Slopes] = (),
    watch: SlopesWatch | None = None,
) -> Fidelity:
    """Compare surrogates with central differences, layer by layer.

    Args:
        backbone: the model.
        reader: of the samples.
        batch: them, and how many go through the model at once.
        name: of the model, for the record.
        fractions: of the visual tokens that are kept.
        methods: the surrogates by name; ``SLOPE_METHODS`` if None.
        score: the scorer.
        known: slopes of the batch's first pieces, measured before.
        watch: called with the slopes of each further piece.
    """
    if len(list(batch.pieces())) < 2:
        raise ConfigError(
            f"expected samples for two batches at least, which standard errors need; found "
            f"{len(batch.answered)} in batches of {batch.at_once or len(batch.answered)}"
        )
    tokens = reader.visual_tokens(backbone, batch)
    comparison = Comparison(
        backbone, tokens, fractions, SLOPE_METHODS if methods is None else methods, score
    )
    pieces = list(known)
    for piece in islice(batch.pieces(), len(known), None):
        pieces.append(measure_slopes(comparison, reader, piece))
        if watch is not None:
            watch(pieces[-1])
    levels = [_level(comparison, pieces, place) for place in range(len(fractions))]
    return Fidelity(
        backbone=name,
        data=reader.source.describe(),
        score=score,
        samples=len(batch.answered),
        visual_tokens=tokens,
        layers=comparison.layers,
        levels=levels,
        pooled=_pooled(comparison, pieces, levels),
    )


def _level(comparison: Comparison, pieces: Sequence[Slopes], place: int) -> Level:
    """Combine the pieces' slopes at one fraction."""
    fraction = comparison.fractions[place]
    sizes = [piece.samples for piece in pieces]
    changes = [piece.changes[place] for piece in pieces]
    differences = [
        estimate([x for piece in pieces for x in piece.difference[place][layer]])
        for layer in comparison.layers
    ]
    methods = {}
    for method in comparison.methods:
        slopes = [piece.gradient[method][place] for piece in pieces]
        errors = [estimate(list(own)).stderr for own in zip(*slopes, strict=True)]
        means = weighted_mean(slopes, sizes)
        gradients = [
            Estimate(mean=round(mean, 6), stderr=error)
            for mean, error in zip(means, errors, strict=True)
        ]
        methods[method] = agreement(
            gradients,
            differences,
            rank_stderr=rank_error(slopes, changes, sizes),
            total_stderr=total_error(slopes, changes, sizes),
        )
    return Level(
        keep_frac=fraction,
        keep=comparison.keep(fraction),
        step=comparison.step(fraction),
        difference=differences,
        certain=sum(certain(x) for x in differences),
        methods=methods,
    )


def _pooled(
    comparison: Comparison, pieces: Sequence[Slopes], levels: Sequence[Level]
) -> dict[str, Pooled]:
    """Combine the levels of each method."""
    sizes = [piece.samples for piece in pieces]
    changes = [[x for level in piece.changes for x in level] for piece in pieces]
    found = {}
    for name, method in comparison.methods.items():
        slopes = [[x for level in piece.gradient[name] for x in level] for piece in pieces]
        found[name] = pooled(
            [x for level in levels for x in level.methods[name].gradient],
            [x for level in levels for x in level.difference],
            passes=passes_of(method),
            rank_stderr=rank_error(slopes, changes, sizes),
        )
    return found
