"""Settings: the configuration of a search, one YAML file (App. A.1, Table 5)."""

from math import ceil
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from typing_extensions import Self

from eos.config import Artifact, ExtendedFloat, Frozen, ProblemsError
from eos.data.batches import Taught
from eos.data.settings import DataConfig, WorldData
from eos.engine.relaxation import Relaxation
from eos.errors import ConfigError
from eos.models.backbone import Backbone
from eos.models.processor import model_name, text_length
from eos.searching.objective import Objective
from eos.space.activations import Group
from eos.space.cost import K_MIN
from eos.space.deployment import Deployment
from eos.space.mixture import components
from eos.space.starts import Init
from eos.space.step import DEFAULT_SCORER, INPUT_SCORER

Method: TypeAlias = Literal["eos", "paper", "random", "tpe"]
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
# what may differ when a run is resumed: how it is shown and saved, not what it finds
NOT_IDENTITY = ("schema_", "backbone", "device_map", "save_every", "trackers")


class ValidationConfig(Frozen):
    """What starts are raced and the answer is measured on.

    Attributes:
        samples: how many.
        data: as ``data``; if None, the world's validation split, or samples held out of what is
            learnt from.
    """

    samples: PositiveInt = 360
    data: DataConfig | None = None


class ExploreConfig(Frozen):
    """How ``method: eos`` finds where to reduce; see `eos.searching.explore`.

    Attributes:
        profile: a ``profile.json`` of the same model to start from; measured if None.
        profile_samples: samples that its curves are measured on.
        best_scorers: how many scorers of a site are measured at all counts.
        focus: share of the validation samples that decide between plans, drawn the more likely the
            more the first candidates leave open there, and weighted by the inverse.
        paths: schedules drawn within the profile's errors that race, besides the likeliest one.
        moves: rounds of moves; each measures the plans one change away from the best.
        gradient: whether operators are then refined by gradient descent, for ``steps`` steps of
            ``batch`` samples.
        gradient_samples: how many samples the descent draws from, again and again.
        confirm_samples: validation samples, besides those that decide, on which the plans of all
            stages are compared at the end; 0 takes the last stage's.
    """

    profile: str | None = None
    profile_samples: PositiveInt = 30
    best_scorers: PositiveInt = 2
    focus: Annotated[float, Field(gt=0, le=1)] = 1 / 3
    paths: NonNegativeInt = 4
    moves: NonNegativeInt = 1
    gradient: bool = True
    gradient_samples: PositiveInt = 120
    confirm_samples: NonNegativeInt = 180


class SearchConfig(Artifact):
    """A search: the model, the data, the budget, and how Θ moves.

    Attributes:
        method: ``eos``: profile, shortest paths, a race, moves and gradients; ``paper``: gradient
            descent on all of Θ under penalties; ``random`` and ``tpe`` (Optuna) try plans of the
            same space until ``passes`` are spent.
        scorers: names of those that belong to the space of all methods but ``paper``; if None, the
            default ones, which work in all model families.
        operators: whether operators other than pruning belong to that space.
        mass: whether kept tokens may take over the attention of dropped ones there (beyond the
            paper; ToMe's proportional attention).
        passes: compute of ``random`` and ``tpe`` for each budget, in forward passes of one sample
            through the full decoder.
        explore: how ``eos`` explores.
        backbone: 'miniature', a folder, or a model's name on the hub.
        device_map: how transformers spreads a model over devices; one device if None.
        budget: B, final visual tokens; what ``plan.json`` is made for.
        budgets: further ones: a plan for each; with ``method: paper`` each step draws one of them
            and runs Θ rescaled to it.
        data: what to learn from.
        validation: what to measure on.
        steps: of the descent; of a finished ``method: paper`` run they may be raised.
        batch: samples of a step.
        seed: of everything that is drawn.
        lr: highest learning rate of AdamW, from which a cosine falls to 0 (Table 5).
        weight_decay: of AdamW.
        clip: largest norm of a gradient; no limit if None.
        warmup: share of the steps in which the learning rate rises.
        micro_batch: samples that go through the model at once; all of the batch if None.
        init: where operators start.
        starts: several of them, which race; the one of the lowest validation loss continues.
        race: share of the steps that each start has before that.
        layers: which start open, the paper's if None.
        fix_layers: whether these are the layers of the answer.
        fix: groups that are held at a value, such as ``{rho: 0}``.
        input_site: whether tokens may be reduced before the decoder, too; if None, with every
            method but ``paper``.
        gate_temperature: T_g, from first to last step (Eq. 10).
        budget_temperature: T_c, from first to last step (Eq. 10).
        k_min: fewest tokens that a layer keeps (Eq. 11).
        score: of importance in the decoder, with ``method: paper``.
        input_score: of importance before the decoder, with ``method: paper``.
        objective: what is minimised and its limits.
        relaxation: how gradients reach the counts, with ``method: paper``.
        answers: which answers of a conversation are taught.
        max_text_tokens: longer samples are skipped.
        recompute: run layers again in the backward pass instead of keeping activations.
        log_every: steps between lines of the history.
        save_every: steps between checkpoints.
        trackers: ``tensorboard`` or ``wandb``, through accelerate.
    """

    schema_: Literal["eos.search/1"] = Field(default="eos.search/1", alias="schema")
    method: Method = "eos"
    scorers: tuple[str, ...] | None = None
    operators: bool = True
    mass: bool = True
    passes: PositiveFloat = 1500.0
    explore: ExploreConfig = ExploreConfig()
    backbone: str = "miniature"
    device_map: str | None = None
    data: DataConfig = WorldData()
    validation: ValidationConfig = ValidationConfig()
    budget: PositiveInt = 64
    budgets: tuple[PositiveInt, ...] | None = None
    steps: PositiveInt = 4000
    batch: PositiveInt = 4
    micro_batch: PositiveInt | None = None
    seed: int = 42
    lr: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 0.0
    clip: PositiveFloat | None = 1.0
    warmup: Fraction = 0.05
    init: Init = "uniform"
    starts: tuple[Init, ...] | None = None
    race: Fraction = 0.1
    layers: tuple[int, ...] | None = None
    fix_layers: bool = False
    fix: dict[Group, ExtendedFloat] = Field(default_factory=dict)
    input_site: bool | None = None
    k_min: PositiveInt = K_MIN
    # at T_g = 1 a closed gate's weight is -3.9, which 4,000 steps of 1e-3 could not open
    gate_temperature: tuple[PositiveFloat, PositiveFloat] = (4.0, 16.0)
    budget_temperature: tuple[PositiveFloat, PositiveFloat] = (1.0, 2.0)
    score: str = DEFAULT_SCORER
    input_score: str = INPUT_SCORER
    objective: Objective = Objective()
    relaxation: Relaxation = Relaxation()
    answers: Taught = "all"
    max_text_tokens: PositiveInt = 2048
    recompute: bool = False
    log_every: PositiveInt = 10
    save_every: PositiveInt = 50
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = []
        named = {"score": self.score, "input_score": self.input_score}
        named |= {f"scorers.{i}": name for i, name in enumerate(self.scorers or ())}
        for key, name in named.items():
            try:
                components(name)
            except ConfigError as failure:
                problems.append(f"{key}: {failure}")
        if self.starts is not None and len(set(self.starts)) != len(self.starts):
            problems.append(f"starts: expected each once, found {list(self.starts)}")
        if self.fix_layers and "g" in self.fix:
            problems.append("fix.g: expected none with fix_layers, which fixes the gates")
        if self.race_steps * len(self.names) and not self.race_steps < self.steps:
            problems.append(f"race: expected less than all steps, found {self.race:g}")
        if problems:
            raise ProblemsError(problems)
        return self

    @property
    def names(self) -> tuple[Init, ...]:
        """The starts, in the order of their turns."""
        return self.starts or (self.init,)

    @property
    def reduces_input(self) -> bool:
        """Whether the site before the decoder belongs to the space."""
        return self.method != "paper" if self.input_site is None else self.input_site

    @property
    def race_steps(self) -> int:
        """How many steps each start has before the best continues; 0 without a race."""
        return max(1, round(self.race * self.steps)) if len(self.names) > 1 else 0

    @property
    def at_once(self) -> int:
        """How many samples go through the model at once."""
        return self.micro_batch or self.batch

    @property
    def judging_pieces(self) -> tuple[int, int]:
        """How many pieces of validation samples decide between plans, and confirm the decision."""
        confirming = self.explore.confirm_samples if self.method == "eos" else 0
        return ceil(self.validation.samples / self.at_once), ceil(confirming / self.at_once)

    @property
    def held_out_samples(self) -> int:
        """How many samples are set aside for validation where the data have no such split."""
        if self.method == "paper":
            return self.validation.samples
        return sum(self.judging_pieces) * self.at_once

    @property
    def all_budgets(self) -> tuple[int, ...]:
        """Every budget that counts, largest first."""
        return tuple(sorted({self.budget, *(self.budgets or ())}, reverse=True))

    def fitted_to(self, backbone: Backbone) -> Self:
        """Fill in what is left to the model: the text length that costs assume."""
        if self.objective.text_tokens is not None:
            return self
        length = {"text_tokens": text_length(backbone.model)}
        return self.model_copy(update={"objective": self.objective.model_copy(update=length)})

    def deployment(self, backbone: Backbone) -> Deployment:
        """Describe the plans that Θ becomes on a model."""
        return Deployment(
            score=self.score,
            input_score=self.input_score,
            max_layers=max(1, int(self.objective.max_layers)),
            dims=backbone.dims,
            text_tokens=self.objective.text_length,
            backbone=model_name(backbone.model),
        )

    def identity(self) -> dict[str, Any]:
        """The settings that a resumed run must share."""
        return self.model_dump(mode="json", exclude=set(NOT_IDENTITY))
