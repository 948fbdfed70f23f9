"""Profile: what dropping tokens costs at every site, by every scorer, down to every count.

One reducer at a time prunes to a count after one layer (or before the decoder), and nothing else is
reduced; its disagreement with the full model is a point of the curve L_l(n) of site and scorer.
Curves are the integrals of the slopes that a gradient search would follow, measured instead of
estimated: they have the right size everywhere, and a shortest path over them (`paths`) gives the
schedule of any budget.

All scorers are compared at one count on a few samples; the best of each site are measured at all
counts on more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from eos.estimates import estimate
from eos.models.processor import model_name
from eos.searching.curves import Point, Profile, screening_count
from eos.searching.judge import Judge
from eos.space.plan import Plan
from eos.space.step import Operator, Step

OCTAVES = 6  # counts halve that often from all tokens
SCREENED = 2  # pieces of samples on which all scorers are compared
PRUNING = Operator()
Cell: TypeAlias = tuple[int, str, int]  # layer, scorer, tokens kept


def counts(visual_tokens: int) -> list[int]:
    """List the counts of a curve: halved again and again, at least one token."""
    halved = [round(visual_tokens / 2**octave) for octave in range(1, OCTAVES + 1)]
    return sorted({max(1, count) for count in halved}, reverse=True)


def measure_profile(
    judge: Judge,
    scorers: Mapping[int, Sequence[str]],
    *,
    visual_tokens: int,
    pieces: int,
    best: int,
    operator: Operator,
    watch: Callable[[int, int], None],
) -> Profile:
    """Measure the curves of every site.

    Args:
        judge: measures plans; its facts name the weights and the samples.
        scorers: names by site.
        visual_tokens: of the model.
        pieces: how many pieces of samples the curves are measured on.
        best: how many scorers of a site are measured at all counts.
        operator: what becomes of dropped tokens.
        watch: called with pieces done and pieces in all.
    """
    backbone, before = judge.backbone, judge.passes
    keep = screening_count(visual_tokens)
    screened = range(min(SCREENED, pieces))
    total = len(screened) + pieces
    cells = [(layer, score, keep) for layer, names in scorers.items() for score in names]
    found: dict[Cell, Tensor] = {}

    def measure(cells: Sequence[Cell], piece: int, done: int) -> None:
        plans = [
            one_step_plan(judge, cell, visual_tokens=visual_tokens, operator=operator)
            for cell in cells
        ]
        for cell, values in zip(cells, judge.disagreement(plans, [piece]), strict=True):
            found[cell] = torch.cat([found[cell], values]) if cell in found else values
        watch(done, total)

    for done, piece in enumerate(screened, start=1):
        measure(cells, piece, done)
    kept = {
        layer: sorted(names, key=lambda name: found[layer, name, keep].mean().item())[:best]
        for layer, names in scorers.items()
    }
    dense = dense_cells(kept, visual_tokens=visual_tokens)
    for piece in range(pieces):
        cells = [cell for cell in dense if piece not in screened or cell[2] != keep]
        measure(cells, piece, len(screened) + piece + 1)
    return Profile(
        backbone=model_name(backbone.model),
        fingerprint=judge.facts["backbone"],
        data=judge.facts["validation"],
        num_layers=backbone.num_layers,
        visual_tokens=visual_tokens,
        dims=backbone.dims,
        mass=operator.mass,
        passes=round(judge.passes - before, 2),
        points=tuple(_point(cell, values) for cell, values in sorted(found.items())),
    )


def dense_cells(scorers: Mapping[int, Sequence[str]], *, visual_tokens: int) -> list[Cell]:
    """List the points of all curves of some scorers."""
    kept = [(layer, score) for layer, names in scorers.items() for score in names]
    return [(layer, score, count) for layer, score in kept for count in counts(visual_tokens)]


def one_step_plan(
    judge: Judge, cell: Cell, *, visual_tokens: int, operator: Operator = PRUNING
) -> Plan:
    """Make the plan that prunes once, as a point of a curve does."""
    layer, score, keep = cell
    return Plan(
        visual_tokens=visual_tokens,
        num_layers=judge.backbone.num_layers,
        dims=judge.backbone.dims,
        text_tokens=judge.text_tokens,
        steps=(Step(layer=layer, keep=keep, score=score, operator=operator),),
    )


def _point(cell: Cell, values: Tensor) -> Point:
    layer, score, keep = cell
    found = estimate(values.tolist()).model_dump()
    return Point(layer=layer, score=score, keep=keep, **found, samples=len(values))
