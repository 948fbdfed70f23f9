"""Counts and costs: by hand, against torch's own counter, and differentiable."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from eos import ConfigError
from eos.space import cost
from eos.space.cost import LLAMA_7B, Dims

# SparseVLM's stages on LLaVA-1.5-7B, and the means of tokens entering a layer that follow from them
SPARSEVLM = {
    (309, 204, 113): 206.5,
    (312, 117, 39): 145.4,
    (82, 32, 18): 82.3,
    (300, 200, 118): 206.8,
    (238, 108, 60): 144.1,
    (66, 34, 20): 81.8,
}


def schedule(counts, layers=(2, 6, 15), num_layers=32):
    return cost.stepwise_schedule(576, dict(zip(layers, counts, strict=True)), num_layers)


@pytest.mark.parametrize(("counts", "mean"), SPARSEVLM.items())
def test_mean_tokens_entering_a_layer(counts, mean):
    assert cost.mean_tokens(schedule(counts)) == pytest.approx(mean, abs=0.051)


def test_a_step_before_the_decoder_is_felt_by_every_layer():
    assert cost.mean_tokens(schedule([64], layers=[-1])) == 64


def test_a_step_after_the_last_layer_saves_nothing():
    late = schedule([1], layers=[31])
    assert late[-1] == 1
    assert cost.flops_ratio(late, LLAMA_7B, tokens=576, text_tokens=64) == 1.0


@pytest.mark.parametrize(
    ("tokens", "keep_frac", "k_min", "expected"),
    [
        (576, 0.5, 1, 288),
        (576, 1 / 3, 1, 192),
        (100, 0.999, 1, 99),
        (576, 0.001, 1, 1),
        (576, 0.001, 16, 16),
        (10, 0.5, 16, 10),
        (576, 1.0, 1, 576),
        (576, torch.tensor(300 / 576).item(), 1, 300),
    ],
)
def test_retain_count(tokens, keep_frac, k_min, expected):
    assert cost.retain_count(tokens, keep_frac, k_min) == expected


def test_the_expected_schedule_follows_the_recursion():
    compression = torch.tensor([0.0, 0.5, 0.25], requires_grad=True)
    found = cost.expected_schedule(576, compression)
    assert found.tolist() == [576, 576, 288, 216]
    (gradient,) = torch.autograd.grad(found[-1], compression)
    assert gradient.tolist() == [-216, -432, -288]


def test_the_formula_on_llama_7b():
    # 32 layers of 4nd^2 + 3ndm + 2n^2 d multiply-adds, as SparseVLM prints for 576 + 88 tokens
    macs = cost.flops([576] * 33, LLAMA_7B, text_tokens=88) / 2
    assert macs == 32 * (4 * 664 * 4096**2 + 2 * 664**2 * 4096 + 3 * 664 * 4096 * 11008)
    assert macs / 1e12 == pytest.approx(4.416, abs=5e-4)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("head_dim", [16, 24])
def test_flops_are_what_torch_counts(kv_heads, attention, head_dim):
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=160,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        attn_implementation=attention,
    )
    layer, rotary = LlamaDecoderLayer(config, layer_idx=0), LlamaRotaryEmbedding(config)
    states = torch.randn(1, 40, 64)
    angles = rotary(states, torch.arange(40)[None])
    # torch has no count for the CPU's fused kernel: let it run as the matrix products it fuses
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer(states, position_embeddings=angles)
    dims = Dims(hidden=64, intermediate=160, heads=4, kv_heads=kv_heads, head_dim=head_dim)
    assert counter.get_total_flops() == cost.layer_flops(40, dims)
    assert counter.get_total_flops() != cost.layer_flops(41, dims)


def test_kv_bytes_are_those_of_a_cache():
    cache = DynamicCache()
    for layer, n in enumerate([30, 30, 12]):
        cache.update(torch.zeros(1, 2, n, 16), torch.zeros(1, 2, n, 16), layer)
    held = sum(x.keys.nbytes + x.values.nbytes for x in cache.layers)
    dims = Dims(hidden=64, intermediate=160, heads=4, kv_heads=2, head_dim=16)
    assert cost.kv_bytes([20, 20, 2, 2], dims, text_tokens=10, bytes_per_value=4) == held


def test_costs_are_differentiable_and_agree_with_the_integers():
    compression = torch.tensor([0.0, 0.5, 0.0, 0.5], dtype=torch.float64, requires_grad=True)
    relaxed, exact = cost.expected_schedule(576, compression), [576, 576, 288, 288, 144]
    sizes = {"tokens": 576, "text_tokens": 64}
    for name in ("flops_ratio", "kv_bytes_ratio"):
        ratio = getattr(cost, name)
        found = ratio(relaxed, LLAMA_7B, **sizes)
        assert found.item() == pytest.approx(ratio(exact, LLAMA_7B, **sizes))
        (gradient,) = torch.autograd.grad(found, compression, retain_graph=True)
        assert (gradient[:3] < 0).all()
        assert gradient[3] == 0  # nothing enters a layer after the last
    assert cost.mean_tokens(relaxed).item() == cost.mean_tokens(exact) == 432


@pytest.mark.parametrize("budget", [576, 192, 128, 64, 32, 16, 1])
def test_rescaling_meets_any_budget_monotonically(budget):
    counts = cost.rescale([0.5, 0.6, 0.7], tokens=576, budget=budget)
    assert counts[-1] == budget
    assert all(a >= b for a, b in zip([576, *counts], counts, strict=False))


def test_rescaling_uses_one_exponent():
    halves = cost.rescale([0.5, 0.5, 0.5], tokens=512, budget=64)
    assert halves == [256, 128, 64]
    assert cost.rescale([0.5, 0.5, 0.5], tokens=512, budget=8) == [128, 32, 8]
    assert cost.rescale([0.25, 1.0, 0.5], tokens=512, budget=64) == [128, 128, 64]
    assert cost.rescale([1.0, 1.0, 1.0], tokens=512, budget=64) == [256, 128, 64]


def test_rescaling_respects_the_smallest_count():
    assert min(cost.rescale([0.01, 0.01], tokens=576, budget=16, k_min=16)) == 16
    with pytest.raises(ConfigError, match="between 16 and 576 tokens, found 8"):
        cost.rescale([0.5], tokens=576, budget=8, k_min=16)
    with pytest.raises(ConfigError, match="at least one step"):
        cost.rescale([], tokens=576, budget=8)
