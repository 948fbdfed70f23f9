"""Forecast: GPU time and memory of the paper's search and tables, computed before anything runs.

Time is FLOPs over what an accelerator does, and bytes over what it reads: prefill and the vision
tower by their FLOPs at a stated utilisation, decoding by reading all weights once a token and
batch. Memory is weights, the KV cache of a batch and what its widest layer holds. Assumptions are
the constants below; `eos search --dry-run` measures instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.paper_tables import PaperTable
from eos.methods.registry import PRESETS
from eos.searching.settings import SearchConfig
from eos.space import cost
from eos.space.cost import LLAMA_7B, TEXT_TOKENS, Dims
from eos.space.plan import Plan
from eos.space.theta import Theta

UTILISATION = 0.3  # of the accelerator's peak FLOPs and bandwidth
ANSWER_TOKENS = 5  # a word or a letter, and the end
BYTES = 2  # of a value in half precision
WORKSPACE = 2 * 2**30  # CUDA's own, kernels, fragmentation
KEPT_WIDTHS = (10, 4)  # values a token and layer keeps for the backward pass, in widths D and F
GIB, HOUR = 2**30, 3600


@dataclass(frozen=True)
class Accelerator:
    """What a device does in a second.

    Attributes:
        name: of the device.
        flops: peak in half precision.
        bandwidth: bytes from its memory.
    """

    name: str
    flops: float
    bandwidth: float


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a model.

    Attributes:
        dims: of a decoder layer.
        num_layers: of the decoder.
        visual_tokens: of an image.
        weights: of the whole model.
        tower_weights: of the vision tower.
    """

    dims: Dims
    num_layers: int
    visual_tokens: int
    weights: int
    tower_weights: int


@dataclass(frozen=True)
class Forecast:
    """Expected time and memory on one accelerator."""

    seconds: float
    bytes: float

    def __str__(self) -> str:
        """Write both as people say them."""
        return f"{self.seconds / HOUR:.1f} GPU hours, {self.bytes / GIB:.0f} GiB"


A100 = Accelerator("A100-80GB", flops=312e12, bandwidth=2.0e12)
LLAVA_7B = ModelSizes(
    LLAMA_7B, num_layers=32, visual_tokens=576, weights=7_063_427_072, tower_weights=303_507_456
)


def table_forecast(
    table: PaperTable, sizes: ModelSizes = LLAVA_7B, device: Accelerator = A100
) -> Forecast:
    """Forecast a table by itself, its searches not counted."""
    questions = sum(BENCHMARKS[name].size for name in table.tasks)
    shared: dict[str, Any] = {"visual_tokens": sizes.visual_tokens, "num_layers": sizes.num_layers}
    full = Plan(**shared, dims=sizes.dims, steps=())
    plans = [full, *(_like(row, shared, sizes.dims) for row in table.rows[1:])]
    decoder = sum(_prefill(plan) for plan in plans)
    flops = questions * (decoder + _tower_flops(sizes))
    reads = len(plans) * questions / table.batch_size * ANSWER_TOKENS * BYTES * sizes.weights
    seconds = (flops / device.flops + reads / device.bandwidth) / UTILISATION
    return Forecast(seconds, _bytes_of_answers(full, sizes, batch=table.batch_size))


def search_forecast(
    config: SearchConfig, sizes: ModelSizes = LLAVA_7B, device: Accelerator = A100
) -> Forecast:
    """Forecast a search with ``method: paper``.

    A step is a forward pass, its backward one as two, and the full model's; validation is the full
    model's and a plan's.
    """
    shared: dict[str, Any] = {"visual_tokens": sizes.visual_tokens, "num_layers": sizes.num_layers}
    theta = Theta.start(sizes.num_layers, visual_tokens=sizes.visual_tokens, budget=config.budget)
    start = Plan.from_theta(theta, budget=config.budget)
    full, reduced = (_prefill(x) for x in (Plan(**shared, dims=sizes.dims, steps=()), start))
    each = (3 + config.recompute) * reduced + bool(config.objective.align_weight) * full
    checked = config.validation.samples * (full + len(config.all_budgets) * reduced)
    samples = config.steps * config.batch
    towers = (samples + config.validation.samples) * _tower_flops(sizes)
    seconds = (samples * each + checked + towers) / device.flops / UTILISATION
    return Forecast(seconds, _bytes_of_search(start, sizes, config))


def _like(row: str, shared: dict[str, Any], dims: Dims) -> Plan:
    """Make a plan of a row's cost: its own if it is a preset, else the FLOPs that a search gets."""
    name, _, budget = row.partition("@")
    like = name if name in PRESETS else "sparsevlm-v2"
    return Plan.preset(like, budget=int(budget), dims=dims, **shared)


def _prefill(plan: Plan) -> float:
    return float(cost.flops(plan.schedule, plan.dims, text_tokens=TEXT_TOKENS))


def _tower_flops(sizes: ModelSizes) -> float:
    return 2.0 * sizes.tower_weights * sizes.visual_tokens


def _bytes_of_answers(full: Plan, sizes: ModelSizes, *, batch: int) -> float:
    """Count weights, the full model's cache, and the widest layer's values of a batch."""
    text = TEXT_TOKENS + ANSWER_TOKENS
    cache = float(cost.kv_bytes(full.schedule, sizes.dims, text_tokens=text))
    tokens = sizes.visual_tokens + TEXT_TOKENS
    layer = tokens * (4 * sizes.dims.hidden + 3 * sizes.dims.intermediate) * BYTES
    return sizes.weights * BYTES + batch * (cache + layer) + WORKSPACE


def _bytes_of_search(start: Plan, sizes: ModelSizes, config: SearchConfig) -> float:
    """Count weights, the values that the backward pass needs, and the full model's aligned ones."""
    entering: Sequence[int] = start.schedule[:-1]
    widths = sizes.dims.hidden, sizes.dims.intermediate
    kept = sum(a * b for a, b in zip(KEPT_WIDTHS, widths, strict=True))
    held = max(entering) + TEXT_TOKENS if config.recompute else 0
    held = held or sum(count + TEXT_TOKENS for count in entering)
    beside = sizes.num_layers * TEXT_TOKENS * sizes.dims.hidden
    return sizes.weights * BYTES + config.at_once * (held * kept + beside) * BYTES + WORKSPACE
