"""Forecast: GPU time and memory of the paper's search and tables, on LLaVA-1.5-7B and an A100.

Time is FLOPs over what an accelerator does, and bytes over what it reads: prefill and the vision
tower by their FLOPs at a stated utilisation, decoding by reading all weights once a token and
batch. Memory is weights, the KV cache of a batch and what its widest layer holds. Assumptions are
the constants below; `eos search --dry-run` measures instead.
"""

from dataclasses import dataclass
from typing import Any

from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.paper_tables import PaperTable
from eos.methods.registry import PRESETS
from eos.searching.settings import SearchConfig
from eos.space import cost
from eos.space.cost import LLAMA_7B, TEXT_TOKENS
from eos.space.plan import Plan
from eos.space.theta import Theta

DEVICE, PEAK_FLOPS, BANDWIDTH = "A100-80GB", 312e12, 2.0e12  # half precision; bytes a second
WEIGHTS, TOWER_WEIGHTS = 7_063_427_072, 303_507_456  # of LLaVA-1.5-7B, and its vision tower
VISUAL_TOKENS, NUM_LAYERS = 576, 32
SIZES: dict[str, Any] = {"visual_tokens": VISUAL_TOKENS, "num_layers": NUM_LAYERS}
FULL_MODEL = Plan(**SIZES, dims=LLAMA_7B, steps=())
TOWER_FLOPS = 2.0 * TOWER_WEIGHTS * VISUAL_TOKENS  # of an image
UTILISATION = 0.3  # of the accelerator's peak FLOPs and bandwidth
ANSWER_TOKENS = 5  # a word or a letter, and the end
BYTES = 2  # of a value in half precision
WORKSPACE = 2 * 2**30  # CUDA's own, kernels, fragmentation
KEPT_WIDTHS = (10, 4)  # values a token and layer keeps for the backward pass, in widths D and F
GIB, HOUR = 2**30, 3600


@dataclass(frozen=True)
class Forecast:
    """Expected time and memory on one device."""

    seconds: float
    bytes: float

    def __str__(self) -> str:
        """Write both as people say them."""
        return f"{self.seconds / HOUR:.1f} GPU hours, {self.bytes / GIB:.0f} GiB"


def table_forecast(table: PaperTable) -> Forecast:
    """Forecast a table by itself, its searches not counted."""
    questions = sum(BENCHMARKS[name].size for name in table.tasks)
    plans = [FULL_MODEL, *(_like(row) for row in table.rows[1:])]
    decoder = sum(_prefill(plan) for plan in plans)
    flops = questions * (decoder + TOWER_FLOPS)
    reads = len(plans) * questions / table.batch_size * ANSWER_TOKENS * BYTES * WEIGHTS
    seconds = (flops / PEAK_FLOPS + reads / BANDWIDTH) / UTILISATION
    return Forecast(seconds, _bytes_of_answers(table.batch_size))


def search_forecast(config: SearchConfig) -> Forecast:
    """Forecast a search with ``method: paper``.

    A step is a forward pass, its backward one as two, and the full model's; validation is the full
    model's and a plan's.
    """
    theta = Theta.start(**SIZES, budget=config.budget)
    start = Plan.from_theta(theta, budget=config.budget)
    full, reduced = _prefill(FULL_MODEL), _prefill(start)
    each = (3 + config.recompute) * reduced + bool(config.objective.align_weight) * full
    checked = config.validation.samples * (full + len(config.all_budgets) * reduced)
    samples = config.steps * config.batch
    towers = (samples + config.validation.samples) * TOWER_FLOPS
    seconds = (samples * each + checked + towers) / PEAK_FLOPS / UTILISATION
    return Forecast(seconds, _bytes_of_search(start, config))


def _like(row: str) -> Plan:
    """Make a plan of a row's cost: its own if it is a preset, else the FLOPs that a search gets."""
    name, _, budget = row.partition("@")
    like = name if name in PRESETS else "sparsevlm-v2"
    return Plan.preset(like, budget=int(budget), dims=LLAMA_7B, **SIZES)


def _prefill(plan: Plan) -> float:
    return float(cost.flops(plan.schedule, plan.dims, text_tokens=TEXT_TOKENS))


def _bytes_of_answers(batch: int) -> float:
    """Count weights, the full model's cache, and the widest layer's values of a batch."""
    text = TEXT_TOKENS + ANSWER_TOKENS
    cache = float(cost.kv_bytes(FULL_MODEL.schedule, LLAMA_7B, text_tokens=text))
    tokens = VISUAL_TOKENS + TEXT_TOKENS
    layer = tokens * (4 * LLAMA_7B.hidden + 3 * LLAMA_7B.intermediate) * BYTES
    return WEIGHTS * BYTES + batch * (cache + layer) + WORKSPACE


def _bytes_of_search(start: Plan, config: SearchConfig) -> float:
    """Count weights, the values that the backward pass needs, and the full model's aligned ones."""
    entering = start.schedule[:-1]
    widths = LLAMA_7B.hidden, LLAMA_7B.intermediate
    kept = sum(a * b for a, b in zip(KEPT_WIDTHS, widths, strict=True))
    held = max(entering) + TEXT_TOKENS if config.recompute else 0
    held = held or sum(count + TEXT_TOKENS for count in entering)
    beside = NUM_LAYERS * TEXT_TOKENS * LLAMA_7B.hidden
    return WEIGHTS * BYTES + config.at_once * (held * kept + beside) * BYTES + WORKSPACE
