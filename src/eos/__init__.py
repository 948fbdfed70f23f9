"""EOS, Efficient Operator Search: one operator for pruning, merging, pooling and reweighting.

Names are imported on first use: ``import eos`` and ``eos --help`` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eos.version import __version__

if TYPE_CHECKING:
    from eos.engine.reduced import reduced
    from eos.engine.relaxation import Relaxation
    from eos.errors import BackboneError, ConfigError, DataError, EosError, PlanError
    from eos.evaluation.evaluate import evaluate
    from eos.evaluation.results import Results
    from eos.models.backbone import Backbone, load_backbone
    from eos.operator.operate import Omega, unified_operator
    from eos.operator.regime import Regime, regime
    from eos.searching.objective import Objective
    from eos.searching.result import SearchResult
    from eos.searching.search import search
    from eos.searching.settings import SearchConfig
    from eos.space.plan import Plan
    from eos.space.step import Operator, Original, Step
    from eos.space.theta import Theta

__all__ = [
    "Backbone",
    "BackboneError",
    "ConfigError",
    "DataError",
    "EosError",
    "Objective",
    "Omega",
    "Operator",
    "Original",
    "Plan",
    "PlanError",
    "Regime",
    "Relaxation",
    "Results",
    "SearchConfig",
    "SearchResult",
    "Step",
    "Theta",
    "__version__",
    "evaluate",
    "load_backbone",
    "reduced",
    "regime",
    "search",
    "unified_operator",
]

_HOMES = {
    **dict.fromkeys(
        ["BackboneError", "ConfigError", "DataError", "EosError", "PlanError"], "eos.errors"
    ),
    "Plan": "eos.space.plan",
    **dict.fromkeys(["Operator", "Original", "Step"], "eos.space.step"),
    **dict.fromkeys(["Omega", "unified_operator"], "eos.operator.operate"),
    **dict.fromkeys(["Regime", "regime"], "eos.operator.regime"),
    **dict.fromkeys(["Backbone", "load_backbone"], "eos.models.backbone"),
    "reduced": "eos.engine.reduced",
    "Relaxation": "eos.engine.relaxation",
    "Objective": "eos.searching.objective",
    "SearchConfig": "eos.searching.settings",
    "search": "eos.searching.search",
    "SearchResult": "eos.searching.result",
    "evaluate": "eos.evaluation.evaluate",
    "Results": "eos.evaluation.results",
    "Theta": "eos.space.theta",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'eos' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
