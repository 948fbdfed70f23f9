"""Verification: what `eos verify` found, in ``verify.json``.

Read without torch, which reports need not have.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, computed_field, model_validator

from eos.config import Artifact, Frozen

# JSON has no NaN, and a discrepancy that is none must not pass for a number
AnyFloat = Annotated[
    float, PlainSerializer(lambda x: x if x - x == 0 else str(x), when_used="json")
]


class Check(Frozen):
    """The worst discrepancy seen between the operator and a reference, against its tolerance."""

    corner: str
    dtype: str
    cases: int
    discrepancy: AnyFloat
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether it is within tolerance (a NaN is not)."""
        return self.discrepancy <= self.tolerance


class StandIn(Frozen):
    """How often τ = 1e-4 differs from hard merging by more than 1e-5."""

    shape: tuple[int, int, int]
    seeds: int
    share_above: float
    worst: AnyFloat


class Verification(Artifact):
    """All that `eos verify` reports: Listing 3, the exact limits, the finite stand-ins."""

    schema_: Literal["eos.verify/1"] = Field(default="eos.verify/1", alias="schema")
    listing: tuple[Check, ...]
    limits: tuple[Check, ...]
    near_ties: int
    stand_ins: tuple[StandIn, ...]

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if key != "passed"}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> bool:
        """Whether every check is within its tolerance."""
        return all(check.passed for check in [*self.listing, *self.limits])
