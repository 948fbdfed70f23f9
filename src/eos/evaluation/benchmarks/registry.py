"""The benchmarks, in the order of the paper's tables."""

from eos.evaluation.benchmarks import (
    ai2d,
    chartqa,
    gqa,
    mmbench,
    mme,
    mmstar,
    ocrbench,
    pope,
    realworldqa,
    scienceqa,
    seed,
    textvqa,
)
from eos.evaluation.benchmarks.questions import Benchmark

PRIOR = (pope, scienceqa, mme, gqa, textvqa, seed)
EXTENDED = (mmstar, realworldqa, ai2d, ocrbench, chartqa, mmbench)
BENCHMARKS: dict[str, Benchmark] = {x.BENCHMARK.name: x.BENCHMARK for x in PRIOR + EXTENDED}
