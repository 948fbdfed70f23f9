"""Focus: the samples that tell plans apart.

Most samples are answered as by the full model under every sensible plan, and say nothing about
which is better. A few plans are measured on a pool of samples, and those that disagree most there
then decide: a third of them carries nine tenths of what plans differ by, so that the same
compute compares plans on three times as many samples.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from eos.runs.journal import Journal
from eos.searching.judge import Judge
from eos.space.plan import Plan


def focused(
    judge: Judge, references: Sequence[Plan], *, pieces: int, share: float, path: Path
) -> Judge:
    """Make the judge of the ``share`` of samples on which some plans disagree most.

    Args:
        judge: of the whole pool.
        references: the plans.
        pieces: how many pieces of the judge's samples are the pool.
        share: of the pool that decides; 1 takes all of it.
        path: the journal of the new judge.
    """
    pool = [sample for piece in range(pieces) for sample in judge.samples(piece)]
    chosen = list(range(len(pool)))
    if share < 1.0:
        doubt = judge.disagreement(references, range(pieces)).mean(dim=0)
        at_once = judge.batch.at_once or len(pool)
        most = min(len(pool), at_once * ceil(share * len(pool) / at_once))
        # in the order of the pool, in which kinds of samples take turns
        chosen = sorted(doubt.argsort(descending=True, stable=True)[:most].tolist())
    named = hashlib.sha256(str(chosen).encode()).hexdigest()[:16]
    return Judge(
        judge.backbone,
        judge.reader,
        replace(judge.batch, answered=tuple(pool[i] for i in chosen), skipped=()),
        judge.processes,
        judge.text_tokens,
        Journal(path),
        facts={**judge.facts, "samples": named},
        passes=judge.passes,
    )
