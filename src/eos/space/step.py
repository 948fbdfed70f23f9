"""Step: one reduction of a plan, as data. Which tokens, how many, and what becomes of the rest.

`contradictions` says whether steps can follow each other in a decoder of a given size.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from eos.config import Checked, ExtendedFloat
from eos.errors import EosError
from eos.methods.registry import OPERATORS
from eos.operator.operate import Omega
from eos.operator.regime import Regime, regime
from eos.operator.scorers import Need
from eos.space.mixture import components, scorers_of

DEFAULT_SCORER = "text-raters"
INPUT_SCORER = "dissimilarity"  # needs no text, so works before the decoder; in every family
if TYPE_CHECKING:
    Kind: TypeAlias = str
else:
    Kind = Literal[tuple(OPERATORS)]  # so that schemas and errors name what there is


class Operator(Checked):
    """The unified operator at one step: Ω of Definition 2.1, exact limits included.

    ``mass`` is beyond the paper: the share of the dropped tokens' attention weights that passes to
    the kept ones, as γ is of their states. With 1, a token that stands for n others is attended to
    as n tokens (ToMe's proportional attention).
    """

    kind: Literal["unified"] = "unified"
    gamma: Annotated[ExtendedFloat, Field(ge=0, le=1)] = 0.0
    tau: Annotated[ExtendedFloat, Field(ge=0)] = 1.0
    theta: ExtendedFloat = -1.0
    rho: Annotated[ExtendedFloat, Field(ge=0)] = 0.0
    nu: Annotated[ExtendedFloat, Field(ge=0, le=1)] = 0.0
    mass: Annotated[float, Field(ge=0, le=1)] = 0.0
    norm: Literal["token", "frobenius"] = "token"

    @property
    def omega(self) -> Omega:
        """The five numbers, for `unified_operator`."""
        return Omega(self.gamma, self.tau, self.theta, self.rho, self.nu)

    @property
    def regime(self) -> Regime:
        """Where this operator stands in its space."""
        return regime(self.gamma, self.tau, self.theta, self.rho, self.nu)

    @property
    def label(self) -> str:
        """What this operator does, in a word."""
        return f"{self.regime}, mass" if self.mass else str(self.regime)


class Original(Checked):
    """A prior method's own operator, where its code does more than a point of the unified one."""

    kind: Kind

    @property
    def label(self) -> str:
        """What this operator does, in a word."""
        return self.kind


def _kind(operator: Any) -> str:
    kind = operator.get("kind", "unified") if isinstance(operator, dict) else operator.kind
    return "unified" if kind == "unified" else "original"


AnyOperator: TypeAlias = Annotated[
    Annotated[Operator, Tag("unified")] | Annotated[Original, Tag("original")], Discriminator(_kind)
]


class Step(Checked):
    """Keep ``keep`` visual tokens after decoder layer ``layer`` (-1: before the decoder)."""

    layer: int
    keep: int
    score: str = DEFAULT_SCORER
    positions: Literal["keep", "reindex"] = "keep"
    operator: AnyOperator = Operator()


def needs(score: str, kind: str) -> set[Need]:
    """List the evidence that a score and an operator need together."""
    scored = [need for scorer in scorers_of(score) for need in scorer.needs]
    return {*scored, *(OPERATORS[kind].needs if kind in OPERATORS else ())}


def contradictions(steps: Sequence[Step], visual_tokens: int, num_layers: int) -> list[str]:
    """Find every way in which a plan's steps contradict each other or what exists."""
    problems, available, previous = [], visual_tokens, -2
    for i, step in enumerate(steps):
        where = f"steps.{i}"
        if not -1 <= step.layer < num_layers:
            problems.append(f"{where}.layer: expected -1 to {num_layers - 1}, found {step.layer}")
        if step.layer <= previous:
            problems.append(f"{where}.layer: expected a layer after {previous}, found {step.layer}")
        if not 1 <= step.keep <= available:
            problems.append(
                f"{where}.keep: expected 1 to {available}, all that are left, found {step.keep}"
            )
        try:
            components(step.score)
        except EosError as failure:
            problems.append(f"{where}.score: {failure}")
        available, previous = min(available, max(step.keep, 1)), max(previous, step.layer)
    return problems
