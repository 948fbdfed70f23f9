"""Trajectory: the course of a descent on Θ and the stages of a default search, from files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eos.errors import DataError
from eos.evaluation.reproduction import Trajectory, TrajectoryStage, TrajectoryStep
from eos.runs.journal import Journal
from eos.searching.files import read_config
from eos.space.plan import Plan


def read_trajectory(
    descent: Path, plans: Mapping[int, Plan], *, searches: Sequence[str]
) -> Trajectory:
    """Read the history of a finished descent, and the stages that plans were found by.

    Args:
        descent: folder of a ``method: paper`` run.
        plans: by budget, of a default search; those without stages are left out.
        searches: names of the two searches.
    """
    plan, config = Plan.load(descent / "plan.json"), read_config(descent)
    lines = list(Journal(descent / "history.jsonl").entries())
    if not lines:
        raise DataError(f"expected steps in {descent / 'history.jsonl'}, found none")
    start = lines[-1]["start"]
    first = -1 if config.reduces_input else 0
    return Trajectory(
        backbone=plan.backbone,
        num_layers=plan.num_layers,
        visual_tokens=plan.visual_tokens,
        budget=config.budget,
        sites=tuple(range(first, plan.num_layers)),
        start=start,
        searches=tuple(searches),
        steps=tuple(
            TrajectoryStep(**{key: line[key] for key in TrajectoryStep.model_fields})
            for line in lines
            if line["start"] == start
        ),
        stages=tuple(
            _stage(budget, record)
            for budget, found in plans.items()
            for record in found.provenance.get("search", {}).get("stages", ())
        ),
    )


def _stage(budget: int, record: Mapping[str, Any]) -> TrajectoryStage:
    """Read one stage of a plan's provenance."""
    return TrajectoryStage(
        budget=budget,
        name=record["name"],
        tried=record["tried"],
        disagreement=record["disagreement"]["mean"],
        stderr=record["disagreement"]["stderr"],
        passes=record["passes"],
        steps=tuple(record["steps"]),
    )
