"""Time and weigh one step of the search against the same work written without EOS.

The other side is plain torch and transformers: the full model without gradients, then the decoder
with tokens sliced off at the same layers to the same counts, forward and backward. Both sides run
in one process, interleaved; medians are compared. Memory is the most that tensors held at once, as
torch's own allocator reports it.

    python benchmarks/bench_search_step.py --hidden 256 --layers 12 --batch 4
"""

import argparse
from collections.abc import Callable
from itertools import accumulate
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForImageTextToText

from eos import Theta, load_backbone
from eos.engine.reference import align_layers
from eos.engine.relaxation import Relaxation, RelaxedTheta
from eos.models.backbone import Backbone
from eos.models.random_llava import TOWER, random_prompt
from eos.searching.gradients import search_losses
from eos.searching.objective import Objective

VISUAL, TEXT, ANSWER, BUDGET = 576, 64, 8, 64
VOCABULARY = 4096


def model_of(layers: int, hidden: int) -> Backbone:
    """Build a LLaVA with LLaMA's proportions and random weights."""
    text = {
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": 16 * round(hidden * 2.6875 / 16),
        "num_hidden_layers": layers,
        "num_attention_heads": max(1, hidden // 64),
        "num_key_value_heads": max(1, hidden // 64),
        "pad_token_id": 0,
    }
    vision = {**TOWER, "patch_size": 4, "image_size": 4 * 24}
    config = AutoConfig.for_model(
        "llava", text_config=text, vision_config=vision, image_token_index=VOCABULARY - 64
    )
    torch.manual_seed(0)
    auto: Any = AutoModelForImageTextToText
    return load_backbone(auto.from_config(config))


def embedded(backbone: Backbone, inputs: dict[str, Any]) -> Tensor:
    """Put text and image together, as the model does, ``[B, T, D]``."""
    decoder: Any = backbone.decoder
    ids = inputs["input_ids"]
    states: Tensor = decoder.embed_tokens(ids)
    features = torch.stack(inputs["mm_encoder_outputs"]["image"].pooler_output)
    where = (ids == backbone.model.config.image_token_id)[..., None]
    return states.masked_scatter(where, features)


def plain_step(
    backbone: Backbone, inputs: dict[str, Any], labels: Tensor, *, lengths: list[int]
) -> Tensor:
    """Do the same work by hand: a full pass, a pass with tokens sliced off, its backward."""
    decoder: Any = backbone.decoder
    head: Any = backbone.model.lm_head
    with torch.no_grad():
        start = embedded(backbone, inputs)
        positions = torch.arange(start.shape[1])[None]
        cos, sin = decoder.rotary_emb(start, positions)
        states = start
        for layer in decoder.layers:
            states = layer(states, attention_mask=None, position_embeddings=(cos, sin))
        decoder.norm(states)
    free = torch.ones((), requires_grad=True)
    states, before = start, start.shape[1]
    for layer, length in zip(decoder.layers, lengths, strict=True):
        if length < before:  # text stays at the end; the first visual tokens after it are cut off
            states = torch.cat([states[:, : length - TEXT], states[:, -TEXT:]], dim=1)
            states = states if states.requires_grad else states * free
            before = length
        rotary = (cos[:, :before], sin[:, :before])
        states = layer(states, attention_mask=None, position_embeddings=rotary)
    logits = head(decoder.norm(states)[:, -ANSWER - 1 : -1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, -ANSWER:].flatten())
    torch.autograd.backward(loss)
    return loss.detach()


def peak(step: Callable[[], object]) -> int:
    """Measure the most bytes that a step's tensors hold at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    events = found.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    alive: list[int] = list(accumulate((size for _, size in changes), initial=0))
    return max(alive)


def main() -> None:
    """Print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--band", type=float, default=0)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--to-the-last", action="store_true", help="align after the last layer too")
    options = parser.parse_args()
    backbone = model_of(options.layers, options.hidden)
    inputs = random_prompt(backbone, text_tokens=TEXT, batch=options.batch)
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, -ANSWER:] = inputs["input_ids"][:, -ANSWER:]
    theta = Theta.start(options.layers, visual_tokens=VISUAL, budget=BUDGET)
    layers = (*align_layers(options.layers), options.layers - 1)
    search = RelaxedTheta(theta, Relaxation(band=options.band))
    settings: dict[str, Any] = {
        "objective": Objective(align_layers=layers if options.to_the_last else None),
        "budget": BUDGET,
        "recompute": options.recompute,
    }

    def ours() -> object:
        losses = search_losses(backbone, search, inputs=inputs, labels=labels, **settings)
        torch.autograd.backward(losses.total)
        return losses

    lengths = [count + TEXT for count in theta.retain_schedule()[:-1]]

    def plain() -> object:
        return plain_step(backbone, inputs, labels, lengths=lengths)

    sides: dict[str, Callable[[], object]] = {"search step": ours, "without EOS": plain}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(options.rounds + 1):
        for name, step in sides.items():
            start = perf_counter()
            step()
            if turn:  # the first warms up
                times[name].append(perf_counter() - start)
    seconds = {name: median(values) for name, values in times.items()}
    bytes_held = {name: peak(step) for name, step in sides.items()}
    print(", ".join(f"{name} {value}" for name, value in vars(options).items()))
    for name in sides:
        print(f"{name:12s} {1e3 * seconds[name]:9.1f} ms  {bytes_held[name] / 2**20:9.1f} MiB")
    names = list(sides)
    for label, values, most in (("time", seconds, 1.25), ("memory", bytes_held, 1.15)):
        print(f"{label} ratio {values[names[0]] / values[names[1]]:.3f} (at most {most})")


if __name__ == "__main__":
    main()
