"""Time the unified operator against the body of Listing 1 and against one LLaMA-7B decoder layer.

Run by ``make bench``. Every ratio is of medians measured in this one process, interleaved, without
gradients, in float32. Memory is what the tensor library allocates at its peak beyond the inputs.
"""

import argparse
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from statistics import median
from time import perf_counter

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from eos import unified_operator
from eos.operator.operate import Omega
from eos.space.cost import LLAMA_7B
from eos.tokens import take

WIDTH = LLAMA_7B.hidden
KEPT = (192, 64, 16)
REPEATS = {576: 25, 2880: 9, 11520: 5}
LAYER_REPEATS = {576: 5, 2880: 2, 11520: 1}
INTERIOR = {
    "searched": Omega(0.083, 0.22, 0.10, 0.0, 0.0),  # the paper's layer 6
    "all five": Omega(0.3, 0.22, 0.10, 0.2, 0.5),
}
PRUNE = Omega(0.0, 1.0, -1.0, 0.0, 0.0)


def listing(A: Tensor, D: Tensor, s: Tensor, omega: Omega, beta: float = 10.0) -> Tensor:
    """Listing 1, line by line: what we must beat."""
    gamma, tau, theta, rho, nu = omega
    S = F.normalize(D, dim=-1) @ F.normalize(A, dim=-1).t()
    W = F.softmax(S / tau, dim=-1)
    m = torch.sigmoid(beta * (S.max(dim=-1).values - theta))
    out = A + gamma * (W.t() @ (D * m.unsqueeze(-1)))
    p = (F.softmax(S, dim=-1) * F.softmax(s, dim=-1).unsqueeze(-1)).sum(0)
    out = out * (1.0 + rho * p.unsqueeze(-1))
    keep = A.norm(dim=-1, keepdim=True) / out.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    blend: Tensor = (1.0 - nu) * out + nu * (out * keep)
    return blend


def ours(anchors: Tensor, candidates: Tensor, scores: Tensor, omega: Omega) -> Tensor:
    """The unified operator, called as the listing is."""
    return unified_operator(anchors, candidates, scores, **omega._asdict())


def matmuls(anchors: Tensor, candidates: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The two matrix products of the listing and nothing else: a floor for its operations."""
    return candidates @ anchors.mT, weights.mT @ candidates


def decoder_layer() -> Callable[[Tensor], object]:
    """One decoder layer of LLaMA-7B with random weights, as a function of its input."""
    config = LlamaConfig(num_hidden_layers=1)  # the 7B sizes are the defaults
    config._attn_implementation = "sdpa"
    layer, rotary = LlamaDecoderLayer(config, layer_idx=0).eval(), LlamaRotaryEmbedding(config)

    def forward(states: Tensor) -> object:
        positions = torch.arange(states.shape[1])[None]
        return layer(states, position_embeddings=rotary(states, positions), attention_mask=None)

    return forward


def interleaved(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time functions in turn, each round in another order; median milliseconds of each.

    The order matters: what one call leaves in the caches and the heap, the next one pays for.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    order = random.Random(0)
    for repeat in range(repeats + 1):
        for name, function in order.sample(list(functions.items()), len(functions)):
            start = perf_counter()
            function()
            if repeat:  # the first round warms up
                times[name].append(1e3 * (perf_counter() - start))
    return {name: median(values) for name, values in times.items()}


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the profiler's own messages, which go to the process's standard error."""
    sys.stderr.flush()
    standard_error = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)


def peak_megabytes(function: Callable[[], object]) -> float:
    """Follow every allocation of a call; the largest sum alive at once."""
    memory_only = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with quiet(), memory_only as profiler:
        function()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    alive: list[int] = list(accumulate((size for _, size in changes), initial=0))
    return max(alive) / 2**20


def measure(tokens: int, kept: int, layer_ms: float) -> list[list[str]]:
    """Measure one size: a row for each interior point, one for the prune corner."""
    states, order = torch.randn(tokens, WIDTH), torch.randperm(tokens)
    index, rest = order[:kept].sort().values, order[kept:].sort().values
    given = take(states, index), take(states, rest), torch.randn(len(rest))
    functions: dict[str, Callable[[], object]] = {
        "gather": partial(take, states, index),
        "prune": partial(ours, *given, PRUNE),
        "matmuls": partial(matmuls, *given[:2], torch.rand(len(rest), kept)),
    }
    for name, omega in INTERIOR.items():
        functions[f"{name} ours"] = partial(ours, *given, omega)
        functions[f"{name} listing"] = partial(listing, *given, omega)
    times = interleaved(functions, REPEATS[tokens])

    rows = []
    for name in INTERIOR:
        mine, paper = times[f"{name} ours"], times[f"{name} listing"]
        memory = peak_megabytes(functions[f"{name} ours"])
        cells = [f"{mine:.2f}", f"{paper:.2f}", f"{mine / paper:.2f}"]
        cells += [f"{times['matmuls'] / paper:.2f}", f"{mine / layer_ms:.2%}", f"{memory:.1f}"]
        cells += [f"{peak_megabytes(functions[f'{name} listing']):.1f}"]
        rows.append([f"{tokens:,}", str(kept), name, *cells])
    pruning = f"{times['gather']:.2f} + {times['prune']:.2f}"
    rows.append([f"{tokens:,}", str(kept), "prune", pruning, *["-"] * 6])
    return rows


@torch.no_grad()
def main() -> None:
    """Measure all sizes and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=list(REPEATS), choices=REPEATS)
    sizes: list[int] = parser.parse_args().tokens
    torch.manual_seed(0)
    columns = "N", "K", "point", "ms", "listing ms", "ratio", "floor", "of a layer", "MB"
    table = Table(*columns, "listing MB")
    layer = decoder_layer()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=len(sizes) * (1 + len(KEPT)))
        for tokens in sizes:
            forward: Callable[[], object] = partial(layer, torch.randn(1, tokens, WIDTH))
            layer_ms = interleaved({"layer": forward}, LAYER_REPEATS[tokens])["layer"]
            progress.advance(task)
            for kept in KEPT:
                for row in measure(tokens, kept, layer_ms):
                    table.add_row(*row)
                progress.advance(task)
            table.add_section()
    Console(width=100).print(table)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, D = {WIDTH}.\n"
        "ratio: our time over the listing's (wanted: at most 0.7). floor: the two matrix products\n"
        "of the listing alone, over its time. of a layer: our time over one decoder layer's at N\n"
        "tokens (wanted: at most 1%). prune: gathering the kept rows + what the operator adds."
    )


if __name__ == "__main__":
    main()
