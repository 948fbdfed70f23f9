"""Catalogue: every study of the programme, by name.

A study is data: which searches it needs, and a function from their plans to rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eos.programme import comparisons, sweeps
from eos.programme.rows import PlanRow, StudyInputs
from eos.programme.scope import Scope
from eos.programme.searches import cheap_budgets

SWEEP = 0.4  # share of a study with many rows
LEAST = 2  # questions of a family, for a standard error


@dataclass(frozen=True)
class StudySpec:
    """A study.

    Attributes:
        title: one line.
        labels: of the paper's tables and figures that it answers.
        searches: names of those that it needs.
        rows: makes its rows from their plans.
        quick: whether a quick programme has it, too.
        applies: whether a programme that is not quick has it.
        share: of the programme's questions that its rows answer; studies with many rows, whose
            differences are large, answer a part.
        settings: what the rows follow from, besides the scope and the plans.
    """

    title: str
    labels: tuple[str, ...]
    searches: Callable[[Scope], list[str]]
    rows: Callable[[StudyInputs], list[PlanRow]]
    quick: bool = False
    applies: Callable[[Scope], bool] = lambda _: True
    share: float = 1.0
    settings: Any = None

    def scope(self, whole: Scope) -> Scope:
        """Reduce the questions of a whole programme to those of this study."""
        if whole.quick:
            return whole
        least = min(whole.limit, LEAST)
        return whole.model_copy(update={"limit": max(least, math.ceil(whole.limit * self.share))})


# answered before the searches are done, for the main study
PRESETS_FIRST = "presets"
STUDIES: dict[str, StudySpec] = {
    PRESETS_FIRST: StudySpec("Every prior method", (), lambda _: [], comparisons.preset_rows),
    "main": StudySpec(
        "Found plans and every prior method at the smaller budgets",
        ("tab:main_retainsweep", "tab:app_perlayer_theta"),
        comparisons.all_seeds,
        comparisons.main_rows,
        quick=True,
    ),
    "larger": StudySpec(
        "Found plans and every prior method at the larger budgets",
        ("tab:main_retainsweep",),
        comparisons.default_searches,
        comparisons.larger_rows,
        applies=lambda scope: bool(comparisons.larger_budgets(scope)),
        share=SWEEP,
    ),
    "cheaper": StudySpec(
        "Plans found at the FLOPs of a method that reduces before the decoder",
        (),
        comparisons.cheap_searches,
        comparisons.cheap_rows,
        applies=lambda scope: bool(cheap_budgets(scope)),
    ),
    "low": StudySpec(
        "Found plans beside SparseVLM v2 at the smallest budgets, family by family",
        ("tab:app_low_retain",),
        comparisons.default_searches,
        comparisons.low_rows,
        quick=True,
    ),
    "placement": StudySpec(
        "Reducers of the found plan at the smallest budget misplaced",
        ("tab:app_layer_perturb",),
        comparisons.default_searches,
        sweeps.placement_rows,
        quick=True,
        settings=sweeps.SHIFT,
    ),
    "operator": StudySpec(
        "Each number of the central reducer's operator swept",
        ("fig:abl_theta",),
        comparisons.default_searches,
        sweeps.operator_rows,
        quick=True,
        share=SWEEP / 2,
        settings=[sweeps.PARAMETERS, sweeps.QUICK_PARAMETERS],
    ),
    "budgets": StudySpec(
        "One plan rescaled to every budget, and plans searched for each",
        ("fig:abl_retain", "tab:app_full_retain"),
        comparisons.default_searches,
        comparisons.budgets_rows,
        share=SWEEP,
    ),
    "layers": StudySpec(
        "Each reducer of the found plans at every layer",
        ("fig:abl_layers",),
        comparisons.default_searches,
        sweeps.layers_rows,
        share=SWEEP,
    ),
    "heatmap": StudySpec(
        "First and last reducer of the found plan at pairs of layers",
        ("fig:abl_layer_heat",),
        comparisons.default_searches,
        sweeps.heatmap_rows,
        share=SWEEP,
        settings=sweeps.HEAT,
    ),
    "seeds": StudySpec(
        "The default search with several seeds", (), comparisons.all_seeds, comparisons.seeds_rows
    ),
    "reproduce": StudySpec(
        "SparseVLM's own code, the same in the unified space, and searched plans",
        ("tab:reproduce",),
        comparisons.fixed_searches,
        comparisons.reproduce_rows,
    ),
    "method": StudySpec(
        "From the paper's search to the default one, a lever at a time",
        (),
        comparisons.ladder_searches,
        comparisons.method_rows,
        share=SWEEP,
    ),
    "selection": StudySpec(
        "The paper's search with different estimators of the gradient",
        (),
        comparisons.estimators,
        comparisons.selection_rows,
        share=SWEEP,
    ),
    "alignment": StudySpec(
        "The paper's search with different weights of the alignment",
        ("fig:abl_lambda",),
        comparisons.descents,
        comparisons.alignment_rows,
        share=SWEEP,
    ),
}
# `eos ablate NAME`: the studies of a name
ABLATIONS: dict[str, tuple[str, ...]] = {
    "alignment": ("alignment",),
    "layers": ("layers", "heatmap"),
    "operator": ("operator",),
    "budgets": ("budgets",),
    "placement": ("placement",),
    "selection": ("selection",),
    "method": ("method",),
    "seeds": ("seeds",),
}
