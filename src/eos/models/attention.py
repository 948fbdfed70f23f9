"""Attention: per-key weights in the attention of decoder layers, and a record of their keys.

A weight k_j multiplies the term of key j in every softmax: log k_j is added to its logits. It is
passed as one more feature of the heads, q' = [q, 1] and k' = [k, log k_j / scaling], through the
model's own attention function: no mask has gradients, so that fused kernels can be used and no
attention map is stored. Weights are 1, less for tokens kept in part, more for tokens that stand for
others, or 0 for tokens that are in the sequence only for their derivative; all are differentiable.
"""

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import exp, log2
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from eos.errors import BackboneError
from eos.models.backbone import Backbone, KeyTap

PREFIX = "eos_"  # of the names under which our attention is registered
KEYWORD = "eos_keys"  # kwarg carrying `Keys`, per-key weights, to a layer's attention
UNSEEN = 32.0  # a logit lowered by about this much adds e^-32: nothing, in float32 and bfloat16
ALIGNMENT = 8  # fused kernels on accelerators need head sizes that are multiples of it


@dataclass(frozen=True)
class Keys:
    """Per-key weights of one layer's attention, and where to record its keys.

    Attributes:
        weights: of the keys, ``[B, T]``, 0 or more; None if all are 1.
        tap: records the keys, or None.
    """

    weights: Tensor | None = None
    tap: KeyTap | None = None


@contextmanager
def weighing(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Make decoder layers accept ``KEYWORD`` inside the block; restored on leaving."""
    attentions = [layer.self_attn for layer in layers]
    configs = [attention.config for attention in attentions]
    try:
        for attention, config in zip(attentions, configs, strict=True):
            if config._attn_implementation.startswith(PREFIX):
                continue
            # a copy: masks are made by the decoder's own configuration, which must not change
            attention.config = copy.copy(config)
            name = f"{PREFIX}{config._attn_implementation}"
            AttentionInterface.register(name, weighted_attention)
            attention.config._attn_implementation_internal = name
        yield
    finally:
        for attention, config in zip(attentions, configs, strict=True):
            attention.config = config


@contextmanager
def checkpointing(backbone: Backbone) -> Iterator[None]:
    """Recompute every decoder layer in the backward pass instead of keeping what it computed.

    Unlike transformers' own this works in eval mode, and hooks are outside of what is replayed.
    """
    with overridden(
        [(layer, "forward", partial(_replayed, layer, layer.forward)) for layer in backbone.layers]
    ):
        yield


@contextmanager
def overridden(overrides: Iterable[tuple[nn.Module, str, Callable[..., Any]]]) -> Iterator[None]:
    """Replace methods of modules by ``(module, name, method)``; what was there comes back."""
    before = []
    try:
        for module, name, method in overrides:
            before.append((module, name, vars(module).get(name)))
            setattr(module, name, method)
        yield
    finally:
        for module, name, own in reversed(before):
            if own is None:
                delattr(module, name)
            else:
                setattr(module, name, own)


def key_feature(weights: Tensor, scaling: float) -> Tensor:
    """Turn weights into the keys' additional feature log k / scaling, ``[B, T]``.

    The derivative of log k is 1 / k. At k = 0 the logarithm has none, but a softmax term is
    proportional to its k: standing at k = ε instead, small enough to be nothing beside the others,
    the derivative in log k is ε times the one in k, which is finite and what we return. Weights
    below ε are taken as ε, too.
    """
    lowest = 2.0 ** round(log2(UNSEEN / scaling))  # a power of two: exact in any dtype
    values = weights.detach()
    seen = values.clamp_min(exp(-lowest * scaling))
    feature = torch.where(values == 0, -lowest, seen.log() / scaling)
    return feature + (weights - values) / (seen * scaling)


def weighted_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend as the model does, to keys ``[B, G, T, E]`` of given weights."""
    keys: Keys = options.pop(KEYWORD, Keys())
    attend = _own(module)
    if keys.tap is not None:
        keys.tap.note(key)
    if keys.weights is None:
        return attend(module, query, key, value, attention_mask, scaling=scaling, **options)
    if options.get("softcap") is not None:
        raise BackboneError(
            "expected attention whose logits are used as they are, which weights are added to; "
            "found a softcap. Search with through='states' and mass=false; plans need mass 0"
        )
    width, dtype = key.shape[-1], value.dtype
    needs_half = "flash" in module.config._attn_implementation  # takes no float32
    if dtype == torch.float16 and torch.is_grad_enabled() and not needs_half:
        # the derivative of a weight of 0 is far below the smallest float16
        query, key, value = query.float(), key.float(), value.float()
        if attention_mask is not None and attention_mask.is_floating_point():
            attention_mask = attention_mask.float()
    more = 1 if key.device.type == "cpu" else ALIGNMENT - width % ALIGNMENT
    feature = key_feature(keys.weights, scaling).to(key)[:, None, :, None]
    query = torch.cat([query, query.new_ones(*query.shape[:-1], 1)], dim=-1)
    key = torch.cat([key, feature.expand(*key.shape[:-1], 1)], dim=-1)
    query, key = (nn.functional.pad(x, (0, more - 1)) if more > 1 else x for x in (query, key))
    value = nn.functional.pad(value, (0, more))  # fused kernels need one size for all three
    out, maps = attend(module, query, key, value, attention_mask, scaling=scaling, **options)
    return out[..., :width].to(dtype), maps


def _own(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Find the attention function that the model would have used."""
    name = module.config._attn_implementation.removeprefix(PREFIX)
    if name == "eager":  # each model file has its own
        return sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[name]


def _replayed(
    layer: nn.Module, forward: Callable[..., Tensor], *args: Any, **kwargs: Any
) -> Tensor:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)

    def run() -> Tensor:
        # a replay may come after the block that hooked the model
        with weighing([layer] if KEYWORD in kwargs else []):
            return forward(*args, **kwargs)

    # no dropout in a frozen model: no random state to restore
    return checkpoint(run, use_reentrant=False, preserve_rng_state=False)
