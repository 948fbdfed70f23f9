"""Time the unified operator against the body of Listing 1 and against one LLaMA-7B decoder layer.

Run by ``make bench``. Every ratio is of medians measured in this one process, interleaved, without
gradients, in float32. Memory is what the tensor library allocates at its peak beyond the inputs.
"""

import argparse
import random
from collections.abc import Callable
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

from eos import Omega, unified_operator
from eos.cost import LLAMA_7B
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
    return (1.0 - nu) * out + nu * (out * keep)


def decoder_layer() -> Callable[[Tensor], Tensor]:
    """One decoder layer of LLaMA-7B with random weights, as a function of its input."""
    config = LlamaConfig(num_hidden_layers=1, attn_implementation="sdpa")  # the 7B sizes
    layer, rotary = LlamaDecoderLayer(config, layer_idx=0).eval(), LlamaRotaryEmbedding(config)

    def forward(states: Tensor) -> Tensor:
        positions = torch.arange(states.shape[1])[None]
        output = layer(states, position_embeddings=rotary(states, positions), attention_mask=None)
        assert isinstance(output, Tensor)
        return output

    return forward


def interleaved(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time functions in turn, each round in another order; median milliseconds of each.

    The order matters: what one call leaves in the caches and the heap, the next one pays for.
    """
    order = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in order.sample(list(functions.items()), len(functions)):
            start = perf_counter()
            function()
            if repeat:
                times[name].append(1e3 * (perf_counter() - start))
    return {name: median(values) for name, values in times.items()}


def once(function: Callable[[], object]) -> float:
    """Time one call, in milliseconds."""
    start = perf_counter()
    function()
    return 1e3 * (perf_counter() - start)


def peak_megabytes(function: Callable[[], object]) -> float:
    """Follow every allocation of a call; the largest sum alive at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = function()
    del result
    results = profiler.profiler.kineto_results  # type: ignore[union-attr]
    events = sorted(
        (event.start_ns(), event.nbytes())
        for event in results.events()
        if event.name() == "[memory]"
    )
    alive = peak = 0
    for _, size in events:
        alive += size
        peak = max(peak, alive)
    return peak / 2**20


def measure(tokens: int, kept: int, layer_ms: float) -> list[list[str]]:
    """Measure one size: a row for each interior point, one for the prune corner."""
    states = torch.randn(tokens, WIDTH)
    index, rest = torch.randperm(tokens).split([kept, tokens - kept])
    index = index.sort().values
    anchors, candidates, scores = take(states, index), take(states, rest), torch.randn(len(rest))

    weights = torch.rand(len(rest), kept)

    def ours(omega: Omega) -> Tensor:
        return unified_operator(anchors, candidates, scores, **omega._asdict())

    def theirs(omega: Omega) -> Tensor:
        return listing(anchors, candidates, scores, omega)

    functions: dict[str, Callable[[], object]] = {
        "gather": lambda: take(states, index),
        "prune": lambda: ours(PRUNE),
        "matmuls": lambda: (candidates @ anchors.mT, weights.mT @ candidates),
    }
    for name, omega in INTERIOR.items():
        functions[f"{name} ours"] = lambda omega=omega: ours(omega)
        functions[f"{name} listing"] = lambda omega=omega: theirs(omega)
    times = interleaved(functions, REPEATS[tokens])

    rows = []
    for name, omega in INTERIOR.items():
        mine, paper = times[f"{name} ours"], times[f"{name} listing"]
        memory = peak_megabytes(lambda omega=omega: ours(omega))
        listing_memory = peak_megabytes(lambda omega=omega: theirs(omega))
        rows.append(
            [
                f"{tokens:,}",
                str(kept),
                name,
                f"{mine:.2f}",
                f"{paper:.2f}",
                f"{mine / paper:.2f}",
                f"{times['matmuls'] / paper:.2f}",
                f"{mine / layer_ms:.2%}",
                f"{memory:.1f}",
                f"{listing_memory:.1f}",
                f"{memory * 2**20 / (4 * tokens * kept):.1f}",
            ]
        )
    pruning = f"+{1e3 * times['prune']:.0f} µs"
    rows.append([f"{tokens:,}", str(kept), "prune", f"{times['gather']:.2f} {pruning}", *["-"] * 7])
    return rows


@torch.no_grad()
def main() -> None:
    """Measure all sizes and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=list(REPEATS), choices=REPEATS)
    tokens_list: list[int] = parser.parse_args().tokens
    torch.manual_seed(0)
    table = Table(
        "N",
        "K",
        "point",
        "ours ms",
        "listing ms",
        "ratio",
        "floor",
        "of a layer",
        "MB",
        "listing MB",
        "MB/4NK",
    )
    layer = decoder_layer()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=len(tokens_list) * (1 + len(KEPT)))
        for tokens in tokens_list:
            states = torch.randn(1, tokens, WIDTH)
            layer_ms = median(once(lambda: layer(states)) for _ in range(LAYER_REPEATS[tokens]))
            progress.advance(task)
            for kept in KEPT:
                for row in measure(tokens, kept, layer_ms):
                    table.add_row(*row)
                progress.advance(task)
            table.add_section()
    Console().print(table)
    print(
        f"threads {torch.get_num_threads()}, torch {torch.__version__}; 'prune': the gather of the kept "
        "rows, plus what the operator adds;\n'floor': the listing's two matmuls alone, as a share of its time.\nWanted: ratio at most 0.7, of a layer at most 1%, MB at most "
        "the listing's, MB/4NK (float32 matrices of N x K) not growing with N."
    )


if __name__ == "__main__":
    main()
