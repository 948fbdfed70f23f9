"""Fidelity: does the surrogate gradient of a layer's compression say what removal does to the loss?

One reducer at one layer at a time prunes to a fraction of the tokens. The derivative of the loss in
the compression g_l c_l, as the search computes it, is set against central differences of the same
loss under the deployed forward pass, in steps of whole tokens. What counts is the order of layers
and the signs: they decide where a search moves.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal

import torch
from pydantic import Field

from eos.backbones.backbone import Backbone
from eos.backbones.processor import place_inputs
from eos.config import Artifact, Frozen
from eos.data.batches import Batch, Reader
from eos.losses import Objective, search_losses
from eos.plan import Plan
from eos.relaxation import Relaxation
from eos.searching.measure import Estimate, estimate, sample_losses
from eos.step import DEFAULT_SCORER, Step
from eos.theta import Theta

FRACTIONS = (0.5, 0.2, 0.05)
STEP = 0.1  # of the kept tokens, to either side
BAND = 0.1  # of the visual tokens
METHODS: dict[str, Relaxation] = {
    "paper, states": Relaxation(selection="paper", through="states"),
    "paper, logits": Relaxation(selection="paper", through="logits"),
    "marginal, logits": Relaxation(selection="marginal", through="logits"),
    f"marginal, logits, band {BAND:g}": Relaxation(
        selection="marginal", through="logits", band=BAND
    ),
}
Watch = Callable[[int, int], None]


class Agreement(Frozen):
    """How a surrogate gradient agrees with differences, over layers.

    Attributes:
        gradient: of each layer; the error is that of batches.
        rank: Spearman's correlation.
        signs: share of layers with the same sign.
        certain_signs: the same among layers whose difference exceeds two standard errors; None if
            there is none.
    """

    gradient: list[Estimate]
    rank: float
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
    watch: Watch | None = None,
) -> Fidelity:
    """Compare surrogates with central differences, layer by layer.

    The last layer is left out: after it nothing attends to anything.
    """
    methods = METHODS if methods is None else methods
    inputs, _ = reader.inputs(batch.answered[:1])
    tokens = int(backbone.visual_mask(inputs["input_ids"]).sum())
    layers = list(range(backbone.num_layers - 1))
    total = len(fractions) * len(layers)
    levels: list[Level] = []
    for fraction in fractions:
        keep = max(2, round(fraction * tokens))
        step = max(1, round(STEP * keep))
        differences: list[Estimate] = []
        gradients: dict[str, list[Estimate]] = {method: [] for method in methods}
        for layer in layers:
            place = _Place(backbone, layer, tokens, score)
            differences.append(place.difference(reader, batch, keep=keep, step=step))
            for method, relaxation in methods.items():
                gradients[method].append(place.gradient(reader, batch, keep, relaxation))
            if watch is not None:
                watch(len(levels) * len(layers) + layer + 1, total)
        levels.append(
            Level(
                keep_frac=fraction,
                keep=keep,
                step=step,
                difference=differences,
                certain=sum(_certain(x) for x in differences),
                methods={m: agreement(own, differences) for m, own in gradients.items()},
            )
        )
    return Fidelity(
        backbone=name,
        data=reader.source.describe(),
        score=score,
        samples=len(batch.answered),
        visual_tokens=tokens,
        layers=layers,
        levels=levels,
    )


class _Place:
    """One layer of a backbone, where a single reducer prunes."""

    def __init__(self, backbone: Backbone, layer: int, tokens: int, score: str) -> None:
        self.backbone, self.layer, self.tokens, self.score = backbone, layer, tokens, score

    def plan(self, keep: int) -> Plan:
        """Prune to ``keep`` tokens after this layer, and nowhere else."""
        return Plan(
            visual_tokens=self.tokens,
            num_layers=self.backbone.num_layers,
            steps=(Step(layer=self.layer, keep=keep, score=self.score),),
        )

    def theta(self, keep: int) -> Theta:
        """Write the same as Θ with one free entry, c of this layer."""
        theta = Theta(self.backbone.num_layers, visual_tokens=self.tokens)
        theta.fix("g", 0.0).fix("g", 1.0, layers=[self.layer])
        theta.fix("gamma", 0.0).fix("rho", 0.0).fix("nu", 0.0).fix("tau", 1.0).fix("theta", 0.0)
        return theta.set("c", 1.0 - keep / self.tokens)

    def difference(self, reader: Reader, batch: Batch, *, keep: int, step: int) -> Estimate:
        """Central difference of the deployed loss in the compression, sample by sample."""
        plans = {"more": self.plan(keep - step), "less": self.plan(keep + step)}
        losses = sample_losses(self.backbone, plans, reader=reader, batch=batch)
        width = 2 * step / self.tokens
        pairs = zip(losses["more"], losses["less"], strict=True)
        return estimate([(more - less) / width for more, less in pairs])

    def gradient(self, reader: Reader, batch: Batch, keep: int, relaxation: Relaxation) -> Estimate:
        """Surrogate derivative of the loss in the compression, part by part of the batch."""
        objective = Objective(
            budget=keep, align_weight=0, budget_weight=0, layers_weight=0, flops_weight=0
        )
        theta, found, sizes = self.theta(keep), [], []
        assert theta.retain_schedule()[-1] == keep
        row = self.layer - theta.sites[0]
        compression = theta.c.detach()[row].double()
        slope = (compression * (1 - compression)).item()  # of c = σ(w)
        for piece in batch.pieces():
            theta.zero_grad()
            inputs, labels = reader.inputs(piece)
            losses = search_losses(
                self.backbone,
                theta,
                inputs=place_inputs(self.backbone.model, inputs),
                labels=labels.to(self.backbone.model.device),
                objective=objective,
                relaxation=relaxation,
                score=self.score,
            )
            losses.total.backward()  # type: ignore[no-untyped-call]
            gradient = theta.weights["c"].grad
            assert gradient is not None
            found.append(float(gradient[row]) / slope)
            sizes.append(len(piece))
        mean = sum(g * n for g, n in zip(found, sizes, strict=True)) / sum(sizes)
        return Estimate(mean=round(mean, 6), stderr=estimate(found).stderr)


def agreement(gradients: Sequence[Estimate], differences: Sequence[Estimate]) -> Agreement:
    """Say how well one set of numbers over layers stands for another."""
    own, true = [x.mean for x in gradients], [x.mean for x in differences]
    same = [(a > 0) == (b > 0) for a, b in zip(own, true, strict=True)]
    certain = [hit for hit, x in zip(same, differences, strict=True) if _certain(x)]
    return Agreement(
        gradient=list(gradients),
        rank=round(rank_correlation(own, true), 4),
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
