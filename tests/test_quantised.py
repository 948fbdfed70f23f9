"""Quantised backbones: what is needed of a layer goes through its own modules."""

import copy

import pytest
import torch
from torch import nn
from transformers import AutoModelForImageTextToText

from eos import BackboneError, Plan, Step, Theta, load_backbone, reduced
from eos.models.backbone import Backbone
from eos.models.devices import device_of
from eos.models.processor import fingerprint
from eos.testing.tiny import tiny_backbone, tiny_inputs
from tests.test_contract import decoded, gap

STEPS = [
    Step(layer=0, keep=24, score="key-norm"),
    Step(layer=1, keep=12, operator={"gamma": 0.5, "tau": 0.3, "rho": 0.2}),
    Step(layer=2, keep=6, score="last-query"),
]
PLAN = Plan(visual_tokens=36, num_layers=4, steps=STEPS)


class Int8Linear(nn.Module):
    """A linear layer of 8-bit integers in buffers, as GPTQ- and AWQ-type layers have them."""

    def __init__(self, linear):
        super().__init__()
        scales = linear.weight.detach().abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("qweight", (linear.weight.detach() / scales).round().to(torch.int8))
        self.register_buffer("scales", scales)

    def forward(self, x):
        """Multiply by the weights, restored."""
        return nn.functional.linear(x, (self.qweight * self.scales).to(x.dtype))


def quantised(model, make=Int8Linear):
    """Replace every projection of the decoder's layers."""
    model = copy.deepcopy(model)
    for layer in model.model.language_model.layers:
        for block in (layer.self_attn, layer.mlp):
            for name, child in [*block.named_children()]:
                if isinstance(child, nn.Linear):
                    setattr(block, name, make(child))
    return model


def restored(linear):
    """A plain linear layer with the values that an 8-bit one stands for."""
    small, plain = Int8Linear(linear), copy.deepcopy(linear)
    plain.weight.data = small.qweight * small.scales
    return plain


@pytest.fixture(scope="module")
def full():
    return tiny_backbone("llava")


@pytest.fixture(scope="module")
def inputs(full):
    return tiny_inputs(full, texts=(7, 4))


def search_step(backbone, inputs):
    """Move Θ once; its gradients, and its values after the step."""
    theta = Theta.start(4, visual_tokens=36, budget=9)
    optimizer = torch.optim.AdamW(theta.weights.values(), lr=0.1)
    with reduced(backbone, theta) as model:
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
    optimizer.step()
    return torch.cat([weight.grad.flatten() for weight in theta.weights.values()])


def test_integers_in_buffers_answer_as_their_values_do(full, inputs):
    small, plain = Backbone(quantised(full.model)), Backbone(quantised(full.model, restored))
    assert not any(True for _ in small.layers[0].self_attn.q_proj.parameters())
    answers = decoded(small, PLAN, inputs)
    assert gap(answers.logits, decoded(plain, PLAN, inputs).logits) <= 1e-4
    assert gap(answers.logits, decoded(small, PLAN, inputs, use_cache=False).logits) <= 1e-4
    assert gap(answers.logits, decoded(full, PLAN, inputs).logits) > 1e-3  # the control: rounded
    gradients = search_step(small, inputs)
    assert torch.allclose(gradients, search_step(plain, inputs), atol=1e-5)
    assert gradients.abs().max() > 1e-3
    assert fingerprint(small.model) != fingerprint(full.model)


def test_a_layer_without_parameters_says_where_it_is(full):
    assert device_of(Int8Linear(full.layers[0].self_attn.q_proj)) == torch.device("cpu")
    assert device_of(nn.Module()) == torch.device("cpu")  # packed weights are not tensors


def test_fused_attention_is_refused(full):
    model = copy.deepcopy(full.model)
    attention = model.model.language_model.layers[0].self_attn
    attention.qkv_proj = attention.q_proj
    del attention.q_proj
    with pytest.raises(BackboneError, match="expected attention with modules q_proj and k_proj"):
        Backbone(model)


def test_what_transformers_quantises(full, inputs, tmp_path):
    """Int8 weights of torchao, by transformers' own loading."""
    torchao = pytest.importorskip("torchao.quantization")
    from transformers import TorchAoConfig

    full.model.save_pretrained(tmp_path)
    settings = TorchAoConfig(torchao.Int8WeightOnlyConfig())
    model = AutoModelForImageTextToText.from_pretrained(
        tmp_path, quantization_config=settings, dtype=torch.float32, device_map="cpu"
    )
    small = load_backbone(model)
    assert type(small.layers[0].self_attn.q_proj.weight) is not nn.Parameter
    answers = decoded(small, PLAN, inputs)
    assert gap(answers.logits, decoded(small, PLAN, inputs, use_cache=False).logits) <= 1e-4
    assert gap(answers.logits, decoded(full, PLAN, inputs).logits) > 1e-3
    assert search_step(small, inputs).abs().max() > 1e-3
    assert fingerprint(model) not in (fingerprint(full.model), "")
