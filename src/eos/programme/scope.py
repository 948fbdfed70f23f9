"""Scope: what a programme is run on, and at what length."""

from typing import Any

from pydantic import PositiveInt, model_validator
from typing_extensions import Self

from eos.config import Checked, ProblemsError
from eos.methods.registry import PRESETS

BUDGETS = (192, 128, 96, 64, 32, 16)
# half of the default's samples, so that a quick programme ends within ten minutes on two cores
SHORT = ("validation.samples=180", "explore.confirm_samples=90", "steps=12")
QUICK_BUDGETS, QUICK_LIMIT = (64, 16), 16
LIMIT = 200  # of the comparisons: paired differences of a point exceed two standard errors
SEED = 27182  # of the questions; nothing was tuned on them
SEEDS = (1, 2, 3)


class Scope(Checked):
    """What all pieces share.

    Attributes:
        config: of the default search, as `eos search` takes it.
        changes: ``key=value`` on top of it.
        paper: configuration of the paper's search; None for ``paper-`` before the name of
            ``config``.
        descent: ``key=value`` on top of ``paper``.
        budgets: of the main comparison, largest first.
        sweep: budgets of the sweeps, three at most.
        limit: questions of each family; sweeps answer a part of them.
        seed: of the questions.
        seeds: of the default searches.
        task: whose questions are answered; ``mini:digit`` takes one family.
        quick: leave out what takes long.
        searches: plans to use instead of searching, one spec a seed: names in the package with
            budgets, or folders of runs.
        presets: prior methods of the main comparison; all if None.
        device: where the model runs; the accelerator torch sees, else the CPU.
        dtype: of the weights.
        attention: implementation.
        batch_size: questions at once.
        slices: most layers at which a reducer is tried.
    """

    config: str = "miniature"
    changes: tuple[str, ...] = ()
    paper: str | None = None
    descent: tuple[str, ...] = ()
    budgets: tuple[PositiveInt, ...] = BUDGETS
    sweep: tuple[PositiveInt, ...] = (192, 64, 16)
    limit: PositiveInt = LIMIT
    seed: int = SEED
    seeds: tuple[int, ...] = SEEDS
    task: str = "mini"
    quick: bool = False
    searches: tuple[str, ...] = ()
    presets: tuple[str, ...] | None = None
    device: str | None = None
    dtype: str | None = None
    attention: str | None = None
    batch_size: PositiveInt = 16
    slices: PositiveInt = 12

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = []
        if list(self.budgets) != sorted(set(self.budgets), reverse=True):
            problems.append(
                f"budgets: expected each once, largest first; found {list(self.budgets)}"
            )
        if not self.budgets or not self.seeds:
            problems.append("budgets, seeds: expected one or more")
        if not set(self.sweep) <= set(self.budgets):
            problems.append(f"sweep: expected some of the budgets, found {list(self.sweep)}")
        for name in self.presets or ():
            if name not in PRESETS:
                problems.append(f"presets: expected some of {', '.join(PRESETS)}; found {name!r}")
        if len(self.searches) > len(self.seeds):
            problems.append(
                f"searches: expected at most one a seed, {len(self.seeds)}; found "
                f"{len(self.searches)}"
            )
        if problems:
            raise ProblemsError(problems)
        return self

    @property
    def questions(self) -> dict[str, Any]:
        """What the answers to questions follow from, besides model and plan."""
        return self.model_dump(include={"task", "limit", "seed", "dtype", "batch_size"})
