"""Take LLaVA-1.5-7B at its true dimensions, weights random in bfloat16, through EOS on a CPU.

Vision tower, projector and decoder have the checkpoint's shapes; images are 336 pixels wide and
have 576 visual tokens. Four stages: build; plans by `eos plan`; `reduced`, the full model beside
two plans under `generate`; a search of two steps with batch 1. Each prints its seconds, and the
most memory that the process held until then. 20 GiB of free memory are enough.

    python benchmarks/full_dimensions.py --out runs/full-dimensions
    python benchmarks/full_dimensions.py --size tiny --layers 4 --out runs/tiny-dimensions
"""

import argparse
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

# before torch: without it, bfloat16 products end the process on some CPUs
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

import eos
from eos.cli import main as run_cli
from eos.miniature.language import make_processor
from eos.miniature.world import example
from eos.models.processor import Processor, place_inputs, read_conversations
from eos.models.random_llava import SIZES, held_bytes, random_llava
from eos.space.cost import kv_bytes

GIB = 2**30
BUDGETS = {"tiny": 9, "small": 64, "7b": 64}
PLANS = ("fastv", "sparsevlm-v2")


def peak_gib() -> float:
    """Read the most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


@contextmanager
def stage(name: str, figures: dict[str, Any]) -> Iterator[None]:
    """Time a block, and note the peak of memory at its end."""
    start = perf_counter()
    yield
    figures[name] = {"seconds": round(perf_counter() - start, 1), "peak_gib": round(peak_gib(), 2)}
    print(f"{name:24s} {figures[name]['seconds']:8.1f} s  {peak_gib():6.2f} GiB", flush=True)


def build(size: Any, layers: int | None) -> tuple[eos.Backbone, Processor]:
    """Make the model, and a processor of its images whose words are the miniature's."""
    tower = size == "7b"  # of LLaVA-1.5; smaller ones have a stub
    backbone = random_llava(size, dtype=torch.bfloat16, num_layers=layers, tower=tower)
    config = backbone.model.config
    vision = config.vision_config
    processor = make_processor(size=vision.image_size, patch=vision.patch_size)
    config.image_token_id = processor.image_token_id
    return backbone, processor


def generate(backbone: eos.Backbone, inputs: dict[str, Any], plan: eos.Plan | None) -> int:
    """Answer in three tokens; the bytes of the KV cache."""
    options: Any = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True}
    model: Any = backbone.model
    with torch.no_grad():
        if plan is None:
            return held_bytes(model.generate(**inputs, **options).past_key_values)
        with eos.reduced(backbone, plan):
            return held_bytes(model.generate(**inputs, **options).past_key_values)


def expected_bytes(plan: eos.Plan | None, inputs: dict[str, Any], backbone: eos.Backbone) -> int:
    """Count the bytes that the cache must have: the prompt's, and two of the three new tokens."""
    visual = int(backbone.visual_mask(inputs["input_ids"]).sum())
    text = inputs["input_ids"].shape[1] - visual + 2
    full = [visual] * (backbone.num_layers + 1)
    return int(kv_bytes(plan.schedule if plan else full, backbone.dims, text_tokens=text))


def search_config(budget: int) -> eos.SearchConfig:
    """Configure two steps of the paper's search that need little memory."""
    return eos.SearchConfig(
        method="paper",
        budget=budget,
        steps=2,
        batch=1,
        validation={"samples": 1},
        recompute=True,
        log_every=1,
        save_every=1,
    )


def main() -> None:
    """Run all stages; print and write their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", choices=list(SIZES), default="7b")
    parser.add_argument("--layers", type=int, help="instead of the size's own")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with stage("build", figures):
        backbone, processor = build(options.size, options.layers)
    figures["weights"] = sum(weight.numel() for weight in backbone.model.parameters())
    print(f"{figures['weights'] / 1e9:.2f} billion weights, {backbone.num_layers} layers")
    budget = BUDGETS[options.size]
    plans = {name: eos.Plan.preset(name, budget=budget, model=backbone) for name in PLANS}
    with stage("eos plan", figures):
        for name, plan in plans.items():
            path = options.out / f"{name}.json"
            plan.save(path)
            assert run_cli(["plan", str(path)]) == 0
    conversation = example("test", "counting", 0).messages()
    inputs = place_inputs(backbone.model, read_conversations(processor, [conversation]))
    for name, used in {"full": None, **plans}.items():
        with stage(f"generate, {name}", figures):
            held = generate(backbone, inputs, used)
        assert held == expected_bytes(used, inputs, backbone), held
    with stage("search, two steps", figures):
        config, data = search_config(budget), eos.WorldData(families=("counting",))
        found = eos.search(backbone, data, config, processor=processor, out=options.out / "search")
    assert found.plan.expected.final_tokens == budget
    assert run_cli(["plan", str(options.out / "search")]) == 0
    (options.out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
