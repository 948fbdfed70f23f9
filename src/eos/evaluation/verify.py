"""Verify that the unified operator is each canonical operator at its corner (Listing 3, Sec. 2.7).

Three parts: the paper's own check with its seed and its finite stand-ins for the limits; the
*exact* limits over many shapes, dtypes and seeds; and how often the finite stand-ins differ from
their limits.
"""

from itertools import product
from math import inf

import torch
from torch import Tensor

from eos.evaluation.verification import Check, StandIn, Verification
from eos.operator.corners import CORNERS
from eos.operator.operate import Omega, unified_operator

LISTING_SEED = 42
LISTING_SHAPE = (8, 16, 64)  # K, M, D
STRENGTH = 1.5  # ρ of the reweight corner
STAND_INS = {
    "prune": Omega(0.0, 1.0, -1e9, 0.0, 0.0),
    "merge": Omega(1.0, 1e-4, -1e9, 0.0, 0.0),
    "pool": Omega(1.0, 1e6, -1e9, 0.0, 0.0),
    "reweight": Omega(0.0, 1.0, -1e9, STRENGTH, 0.0),
}
LIMITS = {
    "prune": Omega(0.0, 1.0, -inf, 0.0, 0.0),
    "merge": Omega(1.0, 0.0, -inf, 0.0, 0.0),
    "pool": Omega(1.0, inf, -inf, 0.0, 0.0),
    "reweight": Omega(0.0, 1.0, -inf, STRENGTH, 0.0),
}
# Absolute, on Listing 3's tokens. Reweight is 0 where both paths round alike, else one unit in the
# last place.
LISTING_TOLERANCE = {"prune": 0.0, "merge": 2e-6, "pool": 2e-6, "reweight": 5e-7}
# Relative to the largest entry: the rounding of the output, and a few units for the sums before it.
LIMIT_TOLERANCE = {
    torch.float64: 1e-13,
    torch.float32: 1e-6,
    torch.bfloat16: 4e-3,
    torch.float16: 5e-4,
}
LIMIT_SHAPES = [LISTING_SHAPE, (1, 5, 3), (16, 1, 32), (64, 512, 128), (192, 384, 256)]
SEEDS = range(5)
NEAR_TIE = 1e-6  # anchors this close in similarity: float32 may rightly pick either
STAND_IN_TRIALS = {LISTING_SHAPE: 2000, (64, 512, 128): 100}
STAND_IN_BOUND = 1e-5


def verify() -> Verification:
    """Run all three parts."""
    limits, near_ties = check_limits()
    return Verification(
        listing=check_listing(),
        limits=limits,
        near_ties=near_ties,
        stand_ins=[measure_stand_in(shape) for shape in STAND_IN_TRIALS],
    )


def check_listing() -> list[Check]:
    """Repeat Listing 3: seed 42, K = 8, M = 16, D = 64, finite stand-ins for the limits."""
    tokens = draw(LISTING_SHAPE, LISTING_SEED)
    return [
        Check(
            corner=corner,
            dtype="float32",
            cases=1,
            discrepancy=_gap(operated(tokens, omega), CORNERS[corner](*tokens)),
            tolerance=LISTING_TOLERANCE[corner],
        )
        for corner, omega in STAND_INS.items()
    ]


def check_limits() -> tuple[list[Check], int]:
    """Compare the exact limits with float64 references over shapes, dtypes and seeds.

    Also counts the merge cases set aside because two anchors nearly tie for some candidate.
    """
    worst: dict[tuple[str, torch.dtype], list[float]] = {}
    near_ties = 0
    for shape, dtype, seed in product(LIMIT_SHAPES, LIMIT_TOLERANCE, SEEDS):
        tokens = tuple(x.to(dtype) for x in draw(shape, seed))
        exact = tuple(x.double() for x in tokens)
        for corner, omega in LIMITS.items():
            if corner == "merge" and nearly_tied(exact[0], exact[1]):
                near_ties += 1
                continue
            reference = CORNERS[corner](*exact)
            gap = _gap(operated(tokens, omega).double(), reference) / reference.abs().max().item()
            worst.setdefault((corner, dtype), []).append(gap)
    checks = [
        Check(
            corner=corner,
            dtype=str(dtype).removeprefix("torch."),
            cases=len(gaps),
            discrepancy=max(gaps),
            tolerance=0.0 if corner == "prune" else LIMIT_TOLERANCE[dtype],
        )
        for (corner, dtype), gaps in worst.items()
    ]
    return sorted(checks, key=lambda check: list(LIMITS).index(check.corner)), near_ties


def measure_stand_in(shape: tuple[int, int, int]) -> StandIn:
    """Measure how often τ = 1e-4 is not hard merging: wherever two anchors nearly tie."""
    seeds = STAND_IN_TRIALS[shape]
    gaps = []
    for seed in range(seeds):
        tokens = draw(shape, seed)
        gaps.append(_gap(operated(tokens, STAND_INS["merge"]), CORNERS["merge"](*tokens)))
    above = sum(gap > STAND_IN_BOUND for gap in gaps)
    return StandIn(shape=shape, seeds=seeds, share_above=above / seeds, worst=max(gaps))


def draw(shape: tuple[int, int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw Gaussian anchors, candidates and scores as Listing 3 does, by a separate generator."""
    kept, other, width = shape
    generator = torch.Generator().manual_seed(seed)
    anchors = torch.randn(kept, width, generator=generator)
    candidates = torch.randn(other, width, generator=generator)
    return anchors, candidates, torch.randn(other, generator=generator)


def operated(tokens: tuple[Tensor, ...], omega: Omega) -> Tensor:
    """Apply the unified operator at Ω."""
    anchors, candidates, scores = tokens
    return unified_operator(anchors, candidates, scores, **omega._asdict())


def nearly_tied(anchors: Tensor, candidates: Tensor) -> bool:
    """Whether some candidate has two nearest anchors within `NEAR_TIE` of each other."""
    if anchors.shape[0] == 1:
        return False
    unit = torch.nn.functional.normalize
    best = (unit(candidates, dim=-1) @ unit(anchors, dim=-1).mT).topk(2, dim=-1).values
    return bool(((best[:, 0] - best[:, 1]) < NEAR_TIE).any())


def _gap(left: Tensor, right: Tensor) -> float:
    return (left - right).abs().max().item()
