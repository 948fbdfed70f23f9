"""Latency: what plans save in time, against what they could save at best.

Prefill and decoding are timed separately, for the full model and every plan, in one process, all
in turn and each round in another order; medians are reported. Beside each plan runs its *bound*:
the untouched layers at exactly the plan's lengths, without any code of ours. The ratio of counted
FLOPs is no bound: on a CPU, plain layers on a few tokens do not reach it either.
"""

import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from operator import truediv
from statistics import median
from typing import Any, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor

from eos.config import Artifact, Frozen
from eos.engine.reduced import Reduction, reads_vision, reduced
from eos.errors import ConfigError, PlanError, numbered
from eos.evaluation.settings import FULL
from eos.evaluation.specs import misfits
from eos.evaluation.stopwatch import Stopwatch, now
from eos.models.backbone import Backbone
from eos.models.hooks import hooked
from eos.models.random_llava import (
    encoded_prompt,
    held_bytes,
    plain_prefill,
    random_prompt,
    visual_tokens,
)
from eos.sizes import FLOPS_FORMULA
from eos.space.cost import flops_ratio, kv_bytes, kv_bytes_ratio, mean_tokens
from eos.space.plan import Plan

Task: TypeAlias = Callable[[], dict[str, float]]


class Row(Frozen):
    """The full model or one plan: what it costs by count, and what was measured.

    Attributes:
        name: of the plan; `FULL` for the model itself.
        final_tokens: visual tokens left at the end.
        mean_tokens: visual tokens that enter a layer, on average.
        flops_ratio: counted FLOPs over the full model's, at the text length of this run.
        kv_ratio: predicted bytes of the cache over the full model's.
        prefill_ms: one forward pass over the prompt.
        decode_ms: one token more, on the cache of that prefill.
        bound_ms: the untouched layers at the plan's lengths.
        overhead: share of prefill spent in all of our own code, scoring and reducing included.
        speedup: the full model's prefill over this one.
        over_bound: this prefill over its bound, the median of the rounds' own ratios.
        kv_bytes: what the cache holds after prefill, and
        kv_bytes_expected: what the plan predicts;
        kv_exact: whether they are equal.
        samples: everything that was timed, by what it is, in the order of the rounds.
    """

    name: str
    final_tokens: int
    mean_tokens: float
    flops_ratio: float
    kv_ratio: float
    prefill_ms: float
    decode_ms: float
    bound_ms: float
    overhead: float
    speedup: float
    over_bound: float
    kv_bytes: int
    kv_bytes_expected: int
    kv_exact: bool
    samples: dict[str, list[float]]


class LatencyReport(Artifact):
    """All rows, the full model first, and the conditions of the measurement: ``latency.json``."""

    schema_: Literal["eos.latency/1"] = Field(default="eos.latency/1", alias="schema")
    model: str
    num_layers: int
    dtype: str
    device: str
    torch: str
    threads: int
    visual_tokens: int
    text_tokens: int
    batch: int
    repeats: int
    decode_tokens: int
    flops_formula: str = FLOPS_FORMULA
    rows: tuple[Row, ...]


def runs(plans: Mapping[str, Plan], repeats: int) -> int:
    """Count how often `measure` will tick."""
    return (repeats + 1) * (2 + 3 * len(plans))


@torch.no_grad()
def measure(
    backbone: Backbone,
    plans: Mapping[str, Plan],
    *,
    text_tokens: int = 64,
    repeats: int = 7,
    decode_tokens: int = 4,
    batch: int = 1,
    model: str = "llava",
    tick: Callable[[], None] | None = None,
) -> LatencyReport:
    """Time the full model and each plan; a round to warm up, then ``repeats`` that count.

    Args:
        backbone: a LLaVA, with real or random weights.
        plans: by the name they have in the report; made for this depth and number of tokens.
        text_tokens: length of the prompt without its image.
        repeats: rounds of which the median is taken.
        decode_tokens: tokens decoded after each prefill.
        batch: equal prompts at once.
        model: the model's name in the report.
        tick: called after each of `runs` measurements, for a progress bar.
    """
    _check(backbone, plans, repeats, decode_tokens)
    bench = _Bench(backbone, random_prompt(backbone, text_tokens=text_tokens, batch=batch))
    tokens = visual_tokens(backbone)
    schedules = {FULL: [tokens] * (backbone.num_layers + 1)}
    schedules |= {name: plan.schedule for name, plan in plans.items()}
    tasks: dict[str, list[Task]] = {}
    for name, schedule in schedules.items():
        bound = partial(bench.bound, [n + text_tokens for n in schedule[:-1]])
        tasks[name] = [partial(bench.generate, plans.get(name), decode_tokens), bound]
        if name in plans:
            tasks[name].append(partial(bench.overhead, plans[name]))
    samples = _interleaved(tasks, repeats, tick)
    full_ms = median(samples[FULL]["prefill_ms"])
    row = partial(_row, backbone=backbone, text_tokens=text_tokens, batch=batch, full_ms=full_ms)
    return LatencyReport(
        model=model,
        num_layers=backbone.num_layers,
        dtype=str(backbone.model.dtype).removeprefix("torch."),
        device=str(backbone.model.device),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        visual_tokens=tokens,
        text_tokens=text_tokens,
        batch=batch,
        repeats=repeats,
        decode_tokens=decode_tokens,
        rows=tuple(row(name, schedules[name], samples[name]) for name in schedules),
    )


def _interleaved(
    tasks: dict[str, list[Task]], repeats: int, tick: Callable[[], None] | None
) -> dict[str, dict[str, list[float]]]:
    """Run all tasks in rounds, each in another order; those of one plan follow on each other.

    The order matters: what one pass leaves in the caches and the heap, the next one pays for. What
    is compared runs back to back, for a machine is not equally fast at all times.
    """
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in tasks}
    order = random.Random(0)
    for repeat in range(repeats + 1):
        for name, own in order.sample(list(tasks.items()), len(tasks)):
            for task in order.sample(own, len(own)):
                for kind, value in task().items():
                    if repeat:  # the first round warms up
                        samples[name].setdefault(kind, []).append(value)
                if tick is not None:
                    tick()
    return samples


class _Bench:
    """One prompt on one model, and the three things that are measured with it, by their names."""

    def __init__(self, backbone: Backbone, prompt: dict[str, Any]) -> None:
        self.backbone, self.prompt = backbone, prompt
        ids: Tensor = prompt["input_ids"]
        self.next_id, shape = ids[:, -1:], (*ids.shape, backbone.dims.hidden)
        self.states = torch.randn(shape).to(ids.device, backbone.model.dtype)

    def generate(self, plan: Plan | None, decode_tokens: int) -> dict[str, float]:
        """Time a prefill and the tokens after it; weigh the cache between the two."""
        positions = self.states.shape[1] + torch.arange(decode_tokens, device=self.states.device)
        full = nullcontext(self.backbone.model)
        with full if plan is None else reduced(self.backbone, plan) as model:
            prompt = self._prompt(plan)
            start = now()
            cache = model(**prompt, use_cache=True, logits_to_keep=1).past_key_values
            prefill = now() - start
            held = held_bytes(cache)
            start = now()
            for ids in positions.view(-1, 1, 1).expand(-1, *self.next_id.shape):
                model(input_ids=self.next_id, position_ids=ids, past_key_values=cache)
            decode = (now() - start) / decode_tokens
        return {"prefill_ms": 1e3 * prefill, "decode_ms": 1e3 * decode, "kv_bytes": held}

    def bound(self, lengths: list[int]) -> dict[str, float]:
        """Time the untouched layers at the plan's lengths."""
        start = now()
        plain_prefill(self.backbone, self.states, lengths=lengths)
        return {"bound_ms": 1e3 * (now() - start)}

    def overhead(self, plan: Plan) -> dict[str, float]:
        """Time our own share of a prefill. A pass of its own: looking at clocks takes time too."""
        stopwatch = Stopwatch(Reduction(self.backbone, plan).begin)
        with hooked(self.backbone, stopwatch.started, vision=reads_vision(plan)) as model:
            prompt = self._prompt(plan)
            start = now()
            model(**prompt, use_cache=True, logits_to_keep=1)
            return {"overhead": stopwatch.seconds / (now() - start)}

    def _prompt(self, plan: Plan | None) -> dict[str, Any]:
        """Run the vision tower before the clock starts, if a scorer of the plan reads it."""
        reads = plan is not None and reads_vision(plan)
        return encoded_prompt(self.backbone, self.prompt) if reads else self.prompt


def _row(
    name: str,
    schedule: list[int],
    samples: dict[str, list[float]],
    *,
    backbone: Backbone,
    text_tokens: int,
    batch: int,
    full_ms: float,
) -> Row:
    dims, per_value = backbone.dims, backbone.model.dtype.itemsize
    sizes = {"tokens": visual_tokens(backbone), "text_tokens": text_tokens}
    expected = batch * kv_bytes(schedule, dims, text_tokens=text_tokens, bytes_per_value=per_value)
    held = int(max(samples["kv_bytes"]))
    times = {kind: median(samples[kind]) for kind in ("prefill_ms", "decode_ms", "bound_ms")}
    return Row(
        name=name,
        final_tokens=schedule[-1],
        mean_tokens=mean_tokens(schedule),
        flops_ratio=flops_ratio(schedule, dims, **sizes),
        kv_ratio=kv_bytes_ratio(schedule, dims, **sizes),
        **times,
        overhead=median(samples.get("overhead", [0.0])),  # the full model has none
        speedup=full_ms / times["prefill_ms"],
        over_bound=median(map(truediv, samples["prefill_ms"], samples["bound_ms"])),
        kv_bytes=held,
        kv_bytes_expected=expected,
        kv_exact=held == expected,
        samples=samples,
    )


def _check(backbone: Backbone, plans: Mapping[str, Plan], repeats: int, decode: int) -> None:
    if repeats < 1 or decode < 1:
        raise ConfigError(
            f"expected at least one round and one decoded token; found {repeats} and {decode}"
        )
    sizes = {"visual_tokens": visual_tokens(backbone), "num_layers": backbone.num_layers}
    problems = misfits(plans.items(), **sizes)
    if problems:
        raise PlanError(numbered(problems))
