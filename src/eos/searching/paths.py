"""Paths: the schedule of a budget as a shortest path over (layer, tokens) through a profile.

Dropping from n to m tokens after layer l costs L_l(m) - L_l(n), the rise of that site's curve, and
every layer costs FLOPs for the tokens that enter it. The path of least cost that ends with the
budget, within the FLOPs limit and at most C steps, is found exactly, up to the grid of counts and
FLOPs: no plan is tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log2
from random import Random

import numpy as np
from numpy.typing import NDArray

from eos.searching.curves import Profile
from eos.searching.space import Space
from eos.space.cost import layer_flops
from eos.space.step import Step

PER_OCTAVE = 4  # counts of the grid
BUCKETS = 1024  # steps of FLOPs up to the limit
Array = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Costs:
    """What a path is made of.

    Attributes:
        grid: counts, all tokens first, the budget last, ``[J]``.
        loss: by site, the least disagreement of any scorer at each count, ``[J]``, rising from 0.
        score: by site, which scorer that is at each count.
    """

    grid: list[int]
    loss: dict[int, Array]
    score: dict[int, list[str]]


def count_grid(visual_tokens: int, budget: int) -> list[int]:
    """Lay counts geometrically between all tokens and the budget."""
    steps = max(1, ceil(PER_OCTAVE * log2(visual_tokens / budget)))
    counts = [round(visual_tokens * (budget / visual_tokens) ** (i / steps)) for i in range(steps)]
    return sorted({*counts, budget}, reverse=True)


def read_costs(
    profile: Profile, space: Space, *, caution: float = 0.0, chance: Random | None = None
) -> Costs:
    """Read a profile for a space.

    Curves are made to rise as fewer tokens are kept, whatever noise says, and interpolated linearly
    in the logarithm of the count. ``caution`` adds so many standard errors; ``chance`` draws each
    curve anew within its errors.
    """
    grid = count_grid(space.visual_tokens, space.budget)
    where = np.log2(np.array(grid, dtype=np.float64))
    loss, score = {}, {}
    for site in space.sites:
        names, rows = [], []
        for name, points in profile.curves(site).items():
            if name not in space.scorers[site]:
                continue
            shift = caution if chance is None else chance.gauss(0.0, 1.0)
            values = [max(0.0, point.mean + shift * point.stderr) for point in points]
            rising = np.maximum.accumulate(np.array([0.0, *values]))
            known = np.log2([float(space.visual_tokens), *(point.keep for point in points)])
            rows.append(np.interp(where, known[::-1], rising[::-1]))
            names.append(name)
        if rows:
            table = np.stack(rows)
            loss[site] = table.min(axis=0)
            score[site] = [names[i] for i in table.argmin(axis=0)]
    return Costs(grid, loss, score)


def shortest_path(costs: Costs, space: Space, *, begin: Sequence[int] = ()) -> list[Step] | None:
    """Find the steps of least cost within the limits; those at sites ``begin`` come first.

    None if no path meets the limits.
    """
    flops = _bucketed(costs, space)
    size, sites = len(costs.grid), list(costs.loss)
    # best[j, f]: least loss with j-th count left and f buckets spent on layers up to this site
    trail: dict[tuple[int, int], tuple[Indices, Indices]] = {}
    start = np.full((size, BUCKETS + 1), np.inf)
    start[0, 0] = 0.0
    reached = {(0, -2): start}  # (steps, last site); the path begins before the input
    for used in range(1, space.max_layers + 1):
        for site in sites:
            if used <= len(begin) and site != begin[used - 1]:
                continue
            earlier = {at: x for (n, at), x in reached.items() if n == used - 1 and at < site}
            if not earlier:
                continue
            came, origin = _arrive(earlier, site, flops)
            rise = np.maximum(costs.loss[site][None, :] - costs.loss[site][:, None], 0.0)
            rise[np.tril_indices(size)] = np.inf  # a step drops at least down to the next count
            total = came[:, None, :] + rise[:, :, None]
            parent = total.argmin(axis=0)
            reached[used, site] = np.take_along_axis(total, parent[None], axis=0)[0]
            trail[used, site] = (parent, origin)
    complete = {key: table for key, table in reached.items() if key[0] >= len(begin)}
    return _trace(complete, trail, costs, space, flops)


def single_step(costs: Costs, site: int, space: Space) -> list[Step]:
    """Drop down to the budget at one site, by its best scorer there."""
    return [Step(layer=site, keep=space.budget, score=costs.score[site][-1])]


def _arrive(earlier: dict[int, Array], site: int, flops: list[int]) -> tuple[Array, Indices]:
    """Carry what was reached at earlier sites on to this one: least loss, and from which site."""
    moved = []
    for last, table in earlier.items():
        layers = site - max(last, -1)
        moved.append(np.stack([_shift(row, layers * flops[j]) for j, row in enumerate(table)]))
    stacked = np.stack(moved)
    best = stacked.argmin(axis=0)
    came: Array = np.take_along_axis(stacked, best[None], axis=0)[0]
    return came, np.array(list(earlier))[best]


def _trace(
    reached: dict[tuple[int, int], Array],
    trail: dict[tuple[int, int], tuple[Indices, Indices]],
    costs: Costs,
    space: Space,
    flops: list[int],
) -> list[Step] | None:
    """Walk back from the cheapest end at the budget."""
    last, best = len(costs.grid) - 1, (np.inf, 0, 0, 0)
    for (used, site), table in reached.items():
        rest = (space.num_layers - 1 - site) * flops[last]
        if used and rest <= BUCKETS:
            row = table[last, : BUCKETS + 1 - rest]
            spent = int(row.argmin())
            best = min(best, (float(row[spent]), used, site, spent))
    loss, used, site, spent = best
    if not np.isfinite(loss):
        return None
    steps, count = [], last
    while used:
        steps.append(Step(layer=site, keep=costs.grid[count], score=costs.score[site][count]))
        parent, origin = trail[used, site]
        count = int(parent[count, spent])
        earlier = int(origin[count, spent])
        spent -= (site - max(earlier, -1)) * flops[count]
        used, site = used - 1, earlier
    return steps[::-1]


def _bucketed(costs: Costs, space: Space) -> list[int]:
    """FLOPs of one layer at each count, in buckets, rounded up so that the limit holds."""
    whole = layer_flops(space.visual_tokens + space.text_tokens, space.dims) * space.num_layers
    unit = whole * space.max_flops / BUCKETS
    return [
        min(ceil(layer_flops(count + space.text_tokens, space.dims) / unit), BUCKETS + 1)
        for count in costs.grid
    ]


def _shift(row: Array, by: int) -> Array:
    if by == 0:
        return row
    moved = np.full_like(row, np.inf)
    if by < len(row):
        moved[by:] = row[:-by]
    return moved


def predicted_loss(steps: list[Step], costs: Costs) -> float:
    """Add up what a path's steps cost on their curves."""
    grid = costs.grid
    places = [0, *(min(range(len(grid)), key=lambda j: abs(grid[j] - s.keep)) for s in steps)]
    return sum(
        max(0.0, float(costs.loss[step.layer][after] - costs.loss[step.layer][before]))
        for step, (before, after) in zip(steps, pairwise(places), strict=True)
    )
