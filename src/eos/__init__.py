"""EOS, Efficient Operator Search: one operator for pruning, merging, pooling and reweighting.

Names are imported on first use: ``import eos`` and ``eos --help`` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eos.version import __version__

if TYPE_CHECKING:
    from eos.data.samples import Sample, Source
    from eos.data.settings import HubData, LlavaData, WorldData
    from eos.engine.reduced import reduced
    from eos.engine.relaxation import Relaxation
    from eos.errors import BackboneError, ConfigError, DataError, EosError, PlanError
    from eos.evaluation.evaluate import evaluate
    from eos.evaluation.results import Results
    from eos.models.backbone import Backbone, load_backbone
    from eos.models.processor import load_processor
    from eos.operator.operate import unified_operator
    from eos.operator.regime import regime
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
    "HubData",
    "LlavaData",
    "Objective",
    "Operator",
    "Original",
    "Plan",
    "PlanError",
    "Relaxation",
    "Results",
    "Sample",
    "SearchConfig",
    "SearchResult",
    "Source",
    "Step",
    "Theta",
    "WorldData",
    "__version__",
    "evaluate",
    "load_backbone",
    "load_processor",
    "reduced",
    "regime",
    "search",
    "unified_operator",
]

_HOMES = {
    "eos.data.samples": ["Sample", "Source"],
    "eos.data.settings": ["HubData", "LlavaData", "WorldData"],
    "eos.engine.reduced": ["reduced"],
    "eos.engine.relaxation": ["Relaxation"],
    "eos.errors": ["BackboneError", "ConfigError", "DataError", "EosError", "PlanError"],
    "eos.evaluation.evaluate": ["evaluate"],
    "eos.evaluation.results": ["Results"],
    "eos.models.backbone": ["Backbone", "load_backbone"],
    "eos.models.processor": ["load_processor"],
    "eos.operator.operate": ["unified_operator"],
    "eos.operator.regime": ["regime"],
    "eos.searching.objective": ["Objective"],
    "eos.searching.result": ["SearchResult"],
    "eos.searching.search": ["search"],
    "eos.searching.settings": ["SearchConfig"],
    "eos.space.plan": ["Plan"],
    "eos.space.step": ["Operator", "Original", "Step"],
    "eos.space.theta": ["Theta"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'eos' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
