"""Say what went wrong in words a user can act on.

Every error a user can cause derives from :class:`EosError` and states what was expected, what was
found and what to do next. Errors of our own invariants stay ``assert``.
"""

from collections.abc import Sequence


class EosError(Exception):
    """Base of every error that a user of EOS can cause.

    Attributes:
        problems: each by itself, where several were found at once.
    """

    def __init__(self, message: str = "", *, problems: Sequence[str] = ()) -> None:
        super().__init__(message or numbered(list(problems)))
        self.problems = list(problems)


class ConfigError(EosError, ValueError):
    """An argument, option or configuration file holds something it must not."""


class PlanError(EosError, ValueError):
    """A plan contradicts itself or the model it is meant for."""


class BackboneError(EosError):
    """A model cannot be loaded, or is not one that EOS can reduce."""


class DataError(EosError):
    """A sample, image or data file cannot be used."""


class StoppedError(EosError):
    """A command was interrupted; what it had done is kept."""


def numbered(problems: list[str]) -> str:
    """Join several problems into one message, so that a user mends them all in one go."""
    if len(problems) == 1:
        return problems[0]
    lines = "".join(f"\n  {i}. {problem}" for i, problem in enumerate(problems, start=1))
    return f"{len(problems)} problems:{lines}"
