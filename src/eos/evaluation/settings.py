"""Settings: model, questions and plans of an evaluation, in the ``config.json`` of its folder.

A folder belongs to one backbone and one set of questions. A rerun resumes it and may add plans.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from eos.config import Artifact
from eos.errors import ConfigError
from eos.runs.identity import check_same
from eos.space.plan import Plan

FULL = "full"
NOT_IDENTITY = {"schema_", "plans", "batch_size"}


class Settings(Artifact):
    """Model, questions and plans; the full model is always evaluated, and is not listed here."""

    schema_: Literal["eos.evaluation/1"] = Field(default="eos.evaluation/1", alias="schema")
    backbone: str
    fingerprint: str
    task: str
    families: tuple[str, ...]
    split: str
    limit: int
    seed: int
    blank: bool
    batch_size: int
    plans: dict[str, Plan]
    data: str | None = None  # what questions that are not a task's own are made of

    @property
    def runs(self) -> dict[str, Plan | None]:
        """The full model, then the plans."""
        return {FULL: None, **self.plans}

    @property
    def identity(self) -> dict[str, Any]:
        """The entries that may not change while a folder is in use."""
        return self.model_dump(exclude=NOT_IDENTITY)


def join_folder(settings: Settings, folder: Path) -> Settings:
    """Add the plans that a folder already has; refuse other questions."""
    path = folder / "config.json"
    if path.exists():
        before = Settings.load(path)
        changed = [
            f"expected the plan {name!r} unchanged; found another of that name"
            for name, plan in settings.plans.items()
            if before.plans.get(name, plan) != plan
        ]
        check_same(folder, before.identity, settings.identity, what="evaluation", problems=changed)
        settings = settings.model_copy(update={"plans": {**before.plans, **settings.plans}})
    elif (folder / "predictions.jsonl").exists():
        raise ConfigError(
            f"expected a config.json beside the predictions in {folder}, found none: their "
            "questions are unknown. Use another folder"
        )
    return settings
