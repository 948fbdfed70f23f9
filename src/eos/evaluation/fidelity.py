"""Fidelity: does the surrogate gradient of a layer's compression say what removal does to the loss?

The derivative of the loss in the compression g_l c_l, as the search computes it, is set against
what the deployed forward pass does (`slopes`). What counts is the order of layers and the signs:
they decide where a search moves.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from random import Random
from statistics import fmean, stdev
from typing import Literal

import torch
from pydantic import Field

from eos.backbones.backbone import Backbone
from eos.config import Artifact, Frozen
from eos.data.batches import Batch, Reader
from eos.evaluation.slopes import Comparison, Slopes, measure_slopes
from eos.relaxation import Relaxation
from eos.searching.measure import Estimate, estimate
from eos.step import DEFAULT_SCORER

FRACTIONS = (0.5, 0.2, 0.05)
BAND = 0.1  # of the visual tokens
DRAWS = 200  # of the bootstrap
METHODS: dict[str, Relaxation] = {
    "paper, states": Relaxation(selection="paper", through="states"),
    "paper, logits": Relaxation(selection="paper", through="logits"),
    "marginal, logits": Relaxation(selection="marginal", through="logits"),
    "rank, logits": Relaxation(selection="rank", through="logits"),
    f"rank, logits, band {BAND:g}": Relaxation(selection="rank", through="logits", band=BAND),
}
Watch = Callable[[Slopes], None]


class Agreement(Frozen):
    """How a surrogate gradient agrees with differences, over layers.

    Attributes:
        gradient: of each layer; the error is that of batches.
        rank: Spearman's correlation,
        rank_stderr: its standard error, by drawing the samples anew.
        signs: share of layers with the same sign.
        certain_signs: the same among layers whose difference exceeds two standard errors; None if
            there is none.
    """

    gradient: list[Estimate]
    rank: float
    rank_stderr: float
    signs: float
    certain_signs: float | None


class Level(Frozen):
    """One keep fraction: what layers' differences are, and what each surrogate says."""

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


def measure_fidelity(
    backbone: Backbone,
    *,
    reader: Reader,
    batch: Batch,
    name: str = "any",
    fractions: Sequence[float] = FRACTIONS,
    methods: Mapping[str, Relaxation] | None = None,
    score: str = DEFAULT_SCORER,
    known: Sequence[Slopes] = (),
    watch: Watch | None = None,
) -> Fidelity:
    """Compare surrogates with central differences, layer by layer.

    Args:
        backbone: the model.
        reader: of the samples.
        batch: them, and how many go through the model at once.
        name: of the model, for the record.
        fractions: of the visual tokens that are kept.
        methods: the surrogates; ``METHODS`` if None.
        score: the scorer.
        known: what was measured of the batch's first pieces before.
        watch: told what each further piece gives.
    """
    inputs, _ = reader.inputs(batch.answered[:1])
    tokens = int(backbone.visual_mask(inputs["input_ids"]).sum())
    comparison = Comparison(
        backbone, tokens, fractions, METHODS if methods is None else methods, score
    )
    pieces = list(known)
    for piece in islice(batch.pieces(), len(known), None):
        pieces.append(measure_slopes(comparison, reader, piece))
        if watch is not None:
            watch(pieces[-1])
    return Fidelity(
        backbone=name,
        data=reader.source.describe(),
        score=score,
        samples=len(batch.answered),
        visual_tokens=tokens,
        layers=comparison.layers,
        levels=[_level(comparison, pieces, place) for place in range(len(fractions))],
    )


def _level(comparison: Comparison, pieces: Sequence[Slopes], place: int) -> Level:
    """Put together what pieces say of one fraction."""
    fraction = comparison.fractions[place]
    sizes = [piece.samples for piece in pieces]
    changes = [[fmean(own) for own in piece.difference[place]] for piece in pieces]
    differences = [
        estimate([x for piece in pieces for x in piece.difference[place][layer]])
        for layer in comparison.layers
    ]
    methods = {}
    for method in comparison.methods:
        slopes = [piece.gradient[method][place] for piece in pieces]
        errors = [estimate(list(own)).stderr for own in zip(*slopes, strict=True)]
        means = _mean(slopes, sizes)
        gradients = [
            Estimate(mean=round(mean, 6), stderr=error)
            for mean, error in zip(means, errors, strict=True)
        ]
        noise = rank_error(slopes, changes, sizes)
        methods[method] = agreement(gradients, differences, rank_stderr=noise)
    return Level(
        keep_frac=fraction,
        keep=comparison.keep(fraction),
        step=comparison.step(fraction),
        difference=differences,
        certain=sum(_certain(x) for x in differences),
        methods=methods,
    )


def rank_error(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], sizes: Sequence[int]
) -> float:
    """Standard error of the rank correlation of two means, by drawing pieces anew (bootstrap).

    Args:
        first: by piece and layer.
        second: likewise.
        sizes: samples of each piece.
    """
    if len(sizes) < 2:
        return 0.0
    chance, found = Random(0), []
    for _ in range(DRAWS):
        drawn = chance.choices(range(len(sizes)), k=len(sizes))
        counts = [sizes[i] for i in drawn]
        found.append(
            rank_correlation(
                _mean([first[i] for i in drawn], counts), _mean([second[i] for i in drawn], counts)
            )
        )
    return stdev(found)


def _mean(pieces: Sequence[Sequence[float]], sizes: Sequence[int]) -> list[float]:
    """Average over pieces, each as heavy as it has samples; layer by layer."""
    total = sum(sizes)
    layers = zip(*pieces, strict=True)
    return [sum(x * n for x, n in zip(own, sizes, strict=True)) / total for own in layers]


def agreement(
    gradients: Sequence[Estimate], differences: Sequence[Estimate], *, rank_stderr: float = 0.0
) -> Agreement:
    """Say how well one set of numbers over layers stands for another."""
    own, true = [x.mean for x in gradients], [x.mean for x in differences]
    same = [(a > 0) == (b > 0) for a, b in zip(own, true, strict=True)]
    certain = [hit for hit, x in zip(same, differences, strict=True) if _certain(x)]
    return Agreement(
        gradient=list(gradients),
        rank=round(rank_correlation(own, true), 4),
        rank_stderr=round(rank_stderr, 4),
        signs=round(fmean(same), 4),
        certain_signs=round(fmean(certain), 4) if certain else None,
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's ρ; ties share their mean rank. 0 if either does not vary.

    >>> rank_correlation([1, 2, 3], [10, 20, 30]), rank_correlation([1, 2, 3], [3, 2, 1])
    (1.0, -1.0)
    """
    a, b = (torch.tensor(_ranks(x), dtype=torch.float64) for x in (first, second))
    a, b = a - a.mean(), b - b.mean()
    scale = float((a.square().sum() * b.square().sum()).sqrt())
    return float((a * b).sum()) / scale if scale else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    borders = [0, *(i for i, (a, b) in enumerate(pairwise(order), start=1) if a != b), len(order)]
    mean = {order[start]: (start + end - 1) / 2 for start, end in pairwise(borders)}
    return [mean[value] for value in values]


def _certain(difference: Estimate) -> bool:
    return abs(difference.mean) > 2 * difference.stderr
