"""Focus: the samples that tell plans apart, and what each of them stands for.

Most samples are answered as by the full model under every sensible plan, and say little about which
is better. A few plans are measured on a pool of samples; a sample is drawn the more likely the more
their disagreement leaves open, and counts for as many as were not drawn in its place. So a third
of the pool carries most of what plans differ by, and a mean over it estimates the mean over the
pool without bias: samples that one plan finds hard do not decide against that plan.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from eos.runs.journal import Journal
from eos.searching.judge import Judge
from eos.space.plan import Plan

FLOOR = 0.05  # spread of plans on a sample on which the first ones agree with the full model


def focused(
    judge: Judge, references: Sequence[Plan], *, pieces: int, share: float, path: Path, seed: int
) -> Judge:
    """Make the judge of a ``share`` of the samples, drawn where some plans leave most open.

    Args:
        judge: of the whole pool.
        references: the plans.
        pieces: how many pieces of the judge's samples are the pool.
        share: of the pool that decides; 1 takes all of it.
        path: the journal of the new judge.
        seed: of the draw.
    """
    pool = [sample for piece in range(pieces) for sample in judge.samples(piece)]
    chosen, weights = list(range(len(pool))), None
    if share < 1.0:
        doubt = judge.disagreement(references, range(pieces)).mean(dim=0)
        at_once = judge.batch.at_once or len(pool)
        size = min(len(pool), at_once * ceil(share * len(pool) / at_once))
        chances = inclusion(doubt, size)
        chosen = drawn(chances, Random(f"eos {seed} focus"))
        weights = size / len(pool) / chances[chosen]
    named = hashlib.sha256(str(chosen).encode()).hexdigest()[:16]
    return replace(
        judge,
        batch=replace(judge.batch, answered=tuple(pool[i] for i in chosen), skipped=()),
        journal=Journal(path),
        facts={**judge.facts, "samples": named},
        weights=weights,
    )


def inclusion(doubt: Tensor, size: int) -> Tensor:
    """Chance of each sample to be drawn, ``[N]``: sums to ``size``, none above 1.

    In proportion to how far plans may differ there: sqrt(d (1 - d)) is the spread of answers that
    disagree with chance d, and no sample is out of reach.

    >>> inclusion(torch.tensor([0.0, 0.5, 0.0, 0.5]), 2)
    tensor([0.0833, 0.9167, 0.0833, 0.9167], dtype=torch.float64)
    """
    spread = (doubt * (1 - doubt)).clamp_min(0).sqrt().double() + FLOOR
    certain = torch.zeros(len(doubt), dtype=torch.bool)
    while True:
        scale = (size - int(certain.sum())) / spread[~certain].sum()
        chances = torch.where(certain, 1.0, scale * spread)
        if not bool((chances > 1).any()):
            return chances
        certain |= chances >= 1


def drawn(chances: Tensor, chance: Random) -> list[int]:
    """Draw samples with these chances, in order and evenly over the pool (systematic sampling).

    Kinds of samples take turns in the pool, so an even draw keeps their shares.
    """
    ends = chances.cumsum(0) - chance.random()
    size = round(float(chances.sum()))
    found = torch.searchsorted(ends, torch.arange(size, dtype=ends.dtype), right=True)
    return found.clamp_max(len(chances) - 1).tolist()
