"""Curves: a profile as its file has it; read without torch, which reports need not have."""

from typing import Literal

from pydantic import Field

from eos.config import Artifact, Frozen
from eos.sizes import Dims

SCREENING = 3  # halvings at which all scorers are compared


class Point(Frozen):
    """Mean disagreement after pruning to ``keep`` tokens at one site by one scorer."""

    layer: int
    score: str
    keep: int
    mean: float
    stderr: float
    samples: int


class Profile(Artifact):
    """``profile.json``."""

    schema_: Literal["eos.profile/1"] = Field(default="eos.profile/1", alias="schema")
    backbone: str
    fingerprint: str
    data: str
    num_layers: int
    visual_tokens: int
    dims: Dims
    passes: float
    points: tuple[Point, ...]

    @property
    def sites(self) -> list[int]:
        """The sites, in order; -1 is the input."""
        return sorted({point.layer for point in self.points})

    def curves(self, layer: int) -> dict[str, list[Point]]:
        """A site's points by scorer, most tokens first; only scorers measured at all counts."""
        found: dict[str, list[Point]] = {}
        for point in sorted(self.points, key=lambda point: -point.keep):
            if point.layer == layer:
                found.setdefault(point.score, []).append(point)
        most = max(len(points) for points in found.values())
        return {score: points for score, points in found.items() if len(points) == most}

    def ranking(self, layer: int) -> list[str]:
        """A site's scorers, best first, by the count at which all were compared."""
        keep = screening_count(self.visual_tokens)
        points = [point for point in self.points if (point.layer, point.keep) == (layer, keep)]
        return [point.score for point in sorted(points, key=lambda point: point.mean)]


def screening_count(visual_tokens: int) -> int:
    """Say at which count all scorers are compared."""
    return max(1, round(visual_tokens / 2.0**SCREENING))
