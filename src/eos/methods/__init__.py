"""Presets: prior methods as small JSON files, at any budget and any depth.

A file says where a method reduces (layers of 32), by what score and operator, and which schedules
were published. A plan for another budget rescales the published schedule that is nearest; one for
another depth moves the layers in proportion.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from math import log
from typing import Any, Literal, TypeAlias

from pydantic import Field

from eos.config import Artifact, Frozen
from eos.errors import PlanError

BudgetKind: TypeAlias = Literal["final", "mean", "published"]

DEPTH, TOKENS = 32, 576  # of LLaVA-1.5-7B, which all schedules were published for


class Schedule(Frozen):
    """Keep so many tokens after these layers (of 32; -1 is before the decoder)."""

    layers: tuple[int, ...]
    keep: tuple[int, ...]


class Preset(Artifact):
    """One method; a ``rule`` computes its schedule where none was published."""

    schema_: Literal["eos.preset/1"] = Field(default="eos.preset/1", alias="schema")
    name: str
    paper: str
    what: str
    score: str
    positions: Literal["keep", "reindex"] = "keep"
    operator: dict[str, Any]
    published: dict[int, Schedule]
    rule: Literal["even"] | None = None

    def schedule(self, budget: int, *, published: bool) -> Schedule:
        """Find a published schedule: of exactly this label, or the one nearest in final tokens."""
        if published or not self.published:
            if budget not in self.published:
                labels = ", ".join(map(str, sorted(self.published))) or "none, only final ones"
                raise PlanError(
                    f"expected a published budget of {self.name}: {labels}; found {budget}"
                )
            return self.published[budget]
        return min(self.published.values(), key=lambda s: abs(log(s.keep[-1] / max(1, budget))))

    def steps(
        self, schedule: Schedule, *, num_layers: int, visual_tokens: int
    ) -> list[dict[str, Any]]:
        """Lay a schedule out for a model of another depth and token count, steps as plain data."""
        layers = [
            layer if layer < 0 else round(layer * num_layers / DEPTH) for layer in schedule.layers
        ]
        counts = [max(1, round(count * visual_tokens / TOKENS)) for count in schedule.keep]
        layers = [min(layer, num_layers - 1) for layer in layers]
        # shallow models may place two steps in one layer: the later one stands
        last = [layer != after for layer, after in pairwise([*layers, num_layers])]
        return self.laid_out(
            [layer for layer, stands in zip(layers, last, strict=True) if stands],
            [count for count, stands in zip(counts, last, strict=True) if stands],
        )

    def laid_out(self, layers: Sequence[int], counts: Sequence[int]) -> list[dict[str, Any]]:
        """Write this method's steps that keep ``counts`` tokens after ``layers``, as plain data."""
        shared = {"score": self.score, "positions": self.positions, "operator": self.operator}
        return [
            {"layer": layer, "keep": keep, **shared}
            for layer, keep in zip(layers, counts, strict=True)
        ]


@cache
def presets() -> dict[str, Preset]:
    """Read all presets that come with the package, by name."""
    found = {}
    for file in sorted(files(__name__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".json"):
            preset = Preset(**json.loads(file.read_text(encoding="utf-8")))
            found[preset.name] = preset
    return found


def get_preset(name: str) -> Preset:
    """Find a preset by name."""
    if name not in presets():
        raise PlanError(f"expected a preset: {', '.join(presets())}; found {name!r}")
    return presets()[name]
