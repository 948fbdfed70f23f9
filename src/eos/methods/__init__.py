"""Methods: prior work, one file each.

A file of this package holds everything about one method: its paper, its scorers, its operator where
the authors' code does more than a point of the unified one, and its presets with published
schedules and constraints. `eos.methods.registry` finds the files; there is no list to extend.

A preset is made for any budget and any depth: another budget rescales the published schedule that
is nearest, another depth moves the layers in proportion.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from math import log
from typing import Any, Literal

from eos.errors import PlanError
from eos.operator.combine import OwnOperator
from eos.operator.operate import Omega
from eos.operator.scorers import Scorer

DEPTH, TOKENS = 32, 576  # of LLaVA-1.5-7B, which all schedules were published for
PRUNE = Omega(gamma=0.0, tau=1.0, theta=-1.0, rho=0.0, nu=0.0)


@dataclass(frozen=True)
class Preset:
    """A method at fixed settings, from which plans are made.

    Attributes:
        name: what plans call it.
        what: one sentence for `eos ls presets`.
        score: name of the scorer.
        layers: reduce after these layers, of 32; -1 is before the decoder.
        published: tokens kept after each of them, of 576, by the authors' own label.
        positions: of the kept tokens: their own, or counted anew.
        operator: a point of the unified operator, or the method's own.
        rule: layers and counts for ``tokens``, ``budget`` and ``num_layers``, where nothing was
            published; the counts are then rescaled to the FLOPs of ``flops_like``.
        flops_like: name of a preset at the same budget.
    """

    name: str
    what: str
    score: str
    layers: tuple[int, ...] = ()
    published: Mapping[int, Sequence[int]] = field(default_factory=dict)
    positions: Literal["keep", "reindex"] = "keep"
    operator: Omega | OwnOperator = PRUNE
    rule: Callable[..., tuple[list[int], list[int]]] | None = None
    flops_like: str = ""

    def nearest_budget(self, budget: int) -> int:
        """Find the smallest number of tokens from ``budget`` on that the operator can make."""
        own = self.operator
        return own.nearest_budget(budget) if isinstance(own, OwnOperator) else budget

    def counts(self, budget: int, *, published: bool) -> Sequence[int]:
        """Find published counts: of exactly this label, or the ones nearest in final tokens."""
        if published or not self.published:
            if budget not in self.published:
                labels = ", ".join(map(str, sorted(self.published))) or "none, only final ones"
                raise PlanError(
                    f"expected a published budget of {self.name}: {labels}; found {budget}"
                )
            return self.published[budget]
        return min(self.published.values(), key=lambda keep: abs(log(keep[-1] / max(1, budget))))

    def scaled(
        self, counts: Sequence[int], *, num_layers: int, visual_tokens: int
    ) -> tuple[list[int], list[int]]:
        """Move layers and counts to a model of another depth and number of visual tokens."""
        layers = [
            layer if layer < 0 else min(round(layer * num_layers / DEPTH), num_layers - 1)
            for layer in self.layers
        ]
        kept = [max(1, round(count * visual_tokens / TOKENS)) for count in counts]
        # shallow models may place two steps in one layer: the later one stands
        last = [layer != after for layer, after in pairwise([*layers, num_layers])]
        return list(compress(layers, last)), list(compress(kept, last))

    def steps(self, layers: Sequence[int], counts: Sequence[int]) -> list[dict[str, Any]]:
        """Write the steps that keep ``counts`` tokens after ``layers``, as plain data."""
        own = self.operator
        operator = {"kind": own.kind} if isinstance(own, OwnOperator) else own._asdict()
        shared = {"score": self.score, "positions": self.positions, "operator": operator}
        return [
            {"layer": layer, "keep": keep, **shared}
            for layer, keep in zip(layers, counts, strict=True)
        ]


@dataclass(frozen=True)
class Method:
    """What a file of this package declares, as ``METHOD``.

    Attributes:
        paper: arXiv id, or what the method is instead of a paper.
        title: of the paper.
        scorers: its scorers by name; those of several methods are in `eos.operator.scorers`.
        operators: its own operators.
        presets: in the order of `eos ls presets`.
    """

    paper: str
    title: str = ""
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    operators: tuple[OwnOperator, ...] = ()
    presets: tuple[Preset, ...] = ()
