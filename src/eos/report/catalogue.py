"""Catalogue: every table and figure of the paper by its label, and those that we add.

An entry names what it is made from, so that what is missing can be named, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.report.drawing import PlotData
from eos.report.figures import ablations, budgets, corners, overview, pictures, strips, trajectory
from eos.report.reproduction import Reproduction
from eos.report.sheet import Sheet
from eos.report.tables import budgets as budget_tables
from eos.report.tables import operators, studies

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TableEntry:
    """A table: how it is made, and what it is made from, in words."""

    title: str
    make: Callable[[Reproduction, str], Sequence[Sheet]]
    needs: str


@dataclass(frozen=True)
class FigureEntry:
    """A figure: the function that makes its rows, the one that draws them, what they need.

    Attributes:
        panels: labels of the paper's subfigures that are panels of it.
        on_both: whether its SVG is for light and dark pages.
    """

    title: str
    make: Callable[[Reproduction], PlotData | None]
    draw: "Callable[[PlotData], Figure]"
    needs: str
    panels: tuple[str, ...] = ()
    on_both: bool = False


def labels() -> list[str]:
    """List the labels of the paper that have an entry, subfigures included."""
    panels = [panel for entry in FIGURES.values() for panel in entry.panels]
    return [label for label in [*TABLES, *FIGURES, *panels] if ":" in label]


def _needs(study: str, command: str = "") -> str:
    return f"studies/{study}.json (`{command or f'eos ablate {study}'}`)"


REPRODUCE = "eos reproduce"
TABLES: dict[str, TableEntry] = {
    "tab:onesided_constraints": TableEntry(
        "One-sided constraints", operators.constraints, _needs("main", REPRODUCE)
    ),
    "tab:unification": TableEntry("Prior methods as fixed points", operators.unification, ""),
    "tab:reproduce": TableEntry(
        "Empirical verification", studies.reproduced, _needs("reproduce", REPRODUCE)
    ),
    "tab:main_retainsweep": TableEntry(
        "Main results", budget_tables.main_results, _needs("main", REPRODUCE)
    ),
    "tab:app_hp": TableEntry("Hyperparameters", operators.hyperparameters, ""),
    "tab:app_perlayer_theta": TableEntry(
        "Searched regime at each layer", operators.per_layer, _needs("main", REPRODUCE)
    ),
    "tab:app_low_retain": TableEntry(
        "Aggressive budgets", budget_tables.aggressive, _needs("low", REPRODUCE)
    ),
    "tab:app_full_retain": TableEntry(
        "Cross-budget robustness", budget_tables.robustness, _needs("budgets")
    ),
    "tab:app_layer_perturb": TableEntry("Layer placement", studies.placements, _needs("placement")),
}
FIGURES: dict[str, FigureEntry] = {
    "fig:eos_overview": FigureEntry(
        "Plan strips above accuracy over FLOPs",
        overview.overview,
        overview.draw_overview,
        f"{_needs('main', REPRODUCE)}, or a results.json with plan-*.json beside it",
        ("fig:teaser_prev_ours", "fig:teaser_intro_eos"),
        on_both=True,
    ),
    "fig:main": FigureEntry(
        "Where, how much and how the found plans reduce",
        strips.method,
        strips.draw_method,
        f"{_needs('main', REPRODUCE)}, or plan-*.json",
    ),
    "fig:operator_equivalence": FigureEntry(
        "Numerical verification of the corners",
        corners.equivalence,
        corners.draw_equivalence,
        "verify.json (`eos verify --json`)",
    ),
    "fig:abl_lambda": FigureEntry(
        "Effect of the alignment weight",
        ablations.alignment,
        ablations.draw_alignment,
        _needs("alignment"),
        tuple(f"fig:abl_lambda_{panel}" for panel in ("pope", "mme", "mmb", "avg")),
    ),
    "fig:abl_layers": FigureEntry(
        "Effect of the layers that reduce",
        ablations.layers,
        ablations.draw_layers,
        "studies/layers.json and studies/heatmap.json (`eos ablate layers`)",
        tuple(f"fig:abl_layer_{panel}" for panel in ("l1", "l2", "l3", "heat")),
    ),
    "fig:abl_theta": FigureEntry(
        "Effect of the operator's numbers",
        ablations.operator,
        ablations.draw_operator,
        _needs("operator"),
        tuple(
            f"fig:abl_theta_{panel}" for panel in ("gamma", "tau", "threshold", "reweight", "normp")
        ),
    ),
    "fig:abl_retain": FigureEntry(
        "Robustness across budgets, and the margin over families",
        budgets.robustness,
        budgets.draw_robustness,
        _needs("budgets"),
        tuple(f"fig:abl_retain_{panel}" for panel in ("pope", "mme", "mmb", "delta")),
    ),
    "fig:app_perlayer": FigureEntry(
        "γ layer by layer, and over a search",
        trajectory.per_layer,
        trajectory.draw_per_layer,
        f"{_needs('main', REPRODUCE)} or plan-*.json; trajectory.json (`eos reproduce`)",
        ("fig:app_perlayer_gamma", "fig:app_search_traj"),
    ),
    # not numbered in the paper
    "search_stages": FigureEntry(
        "Stages of the default search",
        trajectory.stages,
        trajectory.draw_stages,
        "trajectory.json (`eos reproduce`)",
    ),
    "profile": FigureEntry(
        "What dropping tokens after one layer costs",
        trajectory.profile,
        trajectory.draw_profile,
        "profile.json (`eos profile`)",
    ),
    "patches": FigureEntry(
        "What each operator does with a picture's tokens",
        pictures.patches,
        pictures.draw_patches,
        "examples.json (`eos reproduce`)",
    ),
    "answers": FigureEntry(
        "Answers side by side",
        pictures.answers,
        pictures.draw_answers,
        "examples.json (`eos reproduce`)",
    ),
}
