"""Reproduction: the files beside the studies in the folder of `eos reproduce`.

What was run, the course of a search, example pictures. Read without torch, which reports need not
have.
"""

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from eos.config import Artifact, ExtendedFloat, Frozen
from eos.evaluation.study import compact_numbers

# from token, to anchor; None if nothing of the token is left
Flow: TypeAlias = tuple[int, int | None]
# keys of JSON are text: budgets are written as "64"
Budget: TypeAlias = Annotated[int, Field(ge=1)]


class PieceRecord(Frozen):
    """A piece that was done.

    Attributes:
        name: such as ``search/eos-1``.
        kind: search, answers, study, trajectory, examples, verify or profile.
        file: that it made, relative to the reproduction's folder.
        inputs: digest of everything that it was made from.
        seconds: that it took; of an interrupted piece, those since the last start.
        answers: how many answers the piece gave; 0 if it gave none.
    """

    name: str
    kind: str
    file: str
    inputs: str
    seconds: float
    answers: int = 0


class Programme(Artifact):
    """``programme.json``: what was run."""

    schema_: Literal["eos.programme/1"] = Field(default="eos.programme/1", alias="schema")
    backbone: str
    fingerprint: str
    version: str
    quick: bool
    environment: dict[str, Any]
    commands: tuple[str, ...]
    settings: dict[str, Any]
    pieces: tuple[PieceRecord, ...]


class TrajectoryStep(Frozen):
    """One step of a descent on Θ: loss terms, and each group's values by site, as they were."""

    step: int
    lr: float
    loss: dict[str, float]
    final_tokens: int
    expected_final_tokens: float
    active_layers: float
    flops_ratio: float
    theta: dict[str, tuple[ExtendedFloat, ...]]


class TrajectoryStage(Frozen):
    """What a stage of the default search found for a budget.

    Attributes:
        name: of the stage.
        tried: how many plans it measured.
        disagreement: of the best one, and its standard error.
        passes: compute so far, in forward passes of one sample through the full decoder.
        steps: of the best plan, as in ``plan.json``.
    """

    budget: int
    name: str
    tried: int
    disagreement: float
    stderr: float
    passes: float
    steps: tuple[dict[str, Any], ...]


class Trajectory(Artifact):
    """``trajectory.json``: a descent step by step, and the stages of a default search.

    Attributes:
        sites: decoder layers that the values of a group in ``steps`` belong to, in order; -1 is
            before the decoder.
        start: of the descent, if several raced: the one that won.
        searches: names of the pieces that ``steps`` and ``stages`` are from.
    """

    schema_: Literal["eos.trajectory/1"] = Field(default="eos.trajectory/1", alias="schema")
    backbone: str
    num_layers: int
    visual_tokens: int
    budget: int
    sites: tuple[int, ...]
    start: str
    searches: tuple[str, ...]
    steps: tuple[TrajectoryStep, ...]
    stages: tuple[TrajectoryStage, ...]

    def to_json(self) -> str:
        """Write as indented JSON, lists of numbers on one line."""
        return compact_numbers(super().to_json())


class ExampleStep(Frozen):
    """A step on a picture: tokens kept after it, and where each dropped one went.

    Tokens are numbered row by row in the picture's grid.
    """

    layer: int
    kept: tuple[int, ...]
    flows: tuple[Flow, ...]


class ExampleAnswer(Frozen):
    """The full model's answer."""

    answer: str


class ExampleRun(ExampleAnswer):
    """A reduced model's answer, and what its plan did with the tokens."""

    steps: tuple[ExampleStep, ...]


class ExampleItem(Frozen):
    """A picture with a question; ``answer`` is the reference, ``image`` a data URI of a PNG."""

    question: str
    answer: str
    family: str
    image: str
    grid: tuple[int, int]
    full: ExampleAnswer
    plans: dict[Budget, ExampleRun]


class ExamplePlan(Frozen):
    """The plan behind an example's run: its name, and itself as in ``plan.json``."""

    name: str
    plan: dict[str, Any]


class OperatorView(Frozen):
    """What an operator does with a picture's tokens in one step.

    Attributes:
        kept: tokens that stay.
        flows: where each dropped token goes, its main anchor; None if it leaves no trace.
        weights: share of itself that each dropped token gives to its main anchor, in the order of
            ``flows``; 0 where it leaves no trace.
        scales: norm of each kept token after the step relative to before, in the order of ``kept``.
    """

    kept: tuple[int, ...]
    flows: tuple[Flow, ...]
    weights: tuple[float, ...]
    scales: tuple[float, ...]


class OperatorExample(Frozen):
    """Operators by name on one picture, all after the same layer with the same score."""

    image: str
    grid: tuple[int, int]
    layer: int
    keep: int
    score: str
    operators: dict[str, OperatorView]


class Examples(Artifact):
    """``examples.json``: pictures for a page.

    Attributes:
        sites: that a plan may reduce at, in order; -1 is before the decoder.
    """

    schema_: Literal["eos.examples/1"] = Field(default="eos.examples/1", alias="schema")
    backbone: str
    num_layers: int
    visual_tokens: int
    budgets: tuple[int, ...]
    sites: tuple[int, ...]
    plans: dict[Budget, ExamplePlan]
    items: tuple[ExampleItem, ...]
    operators: OperatorExample

    def to_json(self) -> str:
        """Write as JSON without blanks: thousands of tokens."""
        data = self.model_dump(mode="json", by_alias=True)
        return json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n"
