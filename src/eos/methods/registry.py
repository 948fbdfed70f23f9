"""Registry: everything that has a name in a plan, collected from the files of `eos.methods`."""

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

import eos.methods
from eos.errors import PlanError
from eos.methods import Method, Preset
from eos.operator.combine import OwnOperator
from eos.operator.scorers import GENERIC, Scorer

T = TypeVar("T")


def find_methods() -> dict[str, Method]:
    """Import every file of `eos.methods` but this one and read its ``METHOD``, by file name."""
    names = sorted(found.name for found in iter_modules(eos.methods.__path__))
    own = __name__.rpartition(".")[2]
    return {name: import_module(f"eos.methods.{name}").METHOD for name in names if name != own}


def named(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Collect things by name; no two may share one."""
    found: dict[str, T] = {}
    for name, thing in pairs:
        assert name not in found, f"two methods define {name!r}"
        found[name] = thing
    return found


def get_preset(name: str) -> Preset:
    """Find a preset by name."""
    if name not in PRESETS:
        raise PlanError(f"expected a preset: {', '.join(PRESETS)}; found {name!r}")
    return PRESETS[name]


METHODS = find_methods()
SCORERS: dict[str, Scorer] = named(
    [*GENERIC.items(), *(pair for method in METHODS.values() for pair in method.scorers.items())]
)
OPERATORS: dict[str, OwnOperator] = named(
    (operator.kind, operator) for method in METHODS.values() for operator in method.operators
)
PRESETS: dict[str, Preset] = named(
    (preset.name, preset) for method in METHODS.values() for preset in method.presets
)
