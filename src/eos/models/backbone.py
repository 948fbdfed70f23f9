"""Backbone: a frozen vision-language model, seen as a stack of decoder layers.

Wraps any model of a registered family without changing it. Gives the needed query rows and keys of
a layer's own attention, so that no layer returns its attention map or runs twice.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel
from transformers.masking_utils import create_causal_mask

from eos.errors import BackboneError, ConfigError
from eos.models.devices import default_device, device_of
from eos.models.families import family_of
from eos.models.processor import locate
from eos.models.sharding import gathered
from eos.sizes import Dims
from eos.tokens import take


@dataclass
class KeyTap:
    """Records the keys that a layer computes, once; a replay of the layer is ignored."""

    keys: Tensor | None = None
    open: bool = True

    def note(self, keys: Tensor) -> None:
        """Take the keys ``[B, G, T, E]``, positions applied."""
        if self.open:
            self.keys = keys.detach()

    def close(self) -> None:
        """Release them."""
        self.keys, self.open = None, False


@dataclass(frozen=True)
class LayerCall:
    """The inputs of one decoder layer in one forward pass.

    Attributes:
        index: which layer.
        states: hidden states that enter it, ``[B, T, D]``.
        mask: attention mask as the model made it: None, 2-D padding or 4-D.
        rotary: cos and sin of the tokens' positions, each ``[B or 1, T, E]``.
        position_ids: as passed to the layer; None or ``[B or 1, T]``.
        cache: the key-value cache, or None.
        added: features the model adds to the states before this layer, ``[B, T, D]``, or None.
        weights: attention weight of each key, ``[B, T]``, 0 or more; None if all are 1.
        tap: records the layer's keys for a scorer, or None.
    """

    index: int
    states: Tensor
    mask: Tensor | None
    rotary: tuple[Tensor, Tensor]
    position_ids: Tensor | None
    cache: transformers.Cache | None
    added: Tensor | None = None
    weights: Tensor | None = None
    tap: KeyTap | None = None


class Backbone:
    """A frozen model of a supported family."""

    def __init__(self, model: PreTrainedModel, *, freeze: bool = True) -> None:
        self.model = model
        self.family = family_of(model.config)
        self.multimodal: nn.Module = model.model
        self.decoder: nn.Module = getattr(self.multimodal, self.family.decoder)
        self.layers: nn.ModuleList = self.decoder.layers
        attention = self.layers[0].self_attn
        if not (hasattr(attention, "q_proj") and hasattr(attention, "k_proj")):
            raise BackboneError(
                "expected attention with modules q_proj and k_proj, which scorers call; found "
                f"{type(attention).__name__}. Load a quantised model without fused modules"
            )
        if freeze:
            model.requires_grad_(False)
            model.eval()

    @property
    def num_layers(self) -> int:
        """L, the number of decoder layers."""
        return len(self.layers)

    @property
    def dims(self) -> Dims:
        """Sizes of one decoder layer, for its cost."""
        config = self.decoder.config
        attention = self.layers[0].self_attn
        return Dims(
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=attention.head_dim,
        )

    def mask_source(self, layer: int) -> int:
        """Find the layer whose cache determines a layer's mask size: the first of its type."""
        types = getattr(self.decoder.config, "layer_types", None)
        return 0 if types is None else types.index(types[layer])

    def final_norm(self, states: Tensor) -> Tensor:
        """Apply the norm that follows the last layer, without the hooks it may carry."""
        normed: Tensor = self.decoder.norm.forward(states)
        return normed

    def held(self, cache: transformers.Cache, layer: int) -> int:
        """Count the tokens a layer's cache holds: a sliding layer forgets."""
        count: int = cache.layers[layer].keys.shape[-2]
        return count

    def window(self, layer: int) -> int | None:
        """Length of a layer's sliding window, the token itself included; None without one."""
        window: int | None = getattr(self.layers[layer].self_attn, "sliding_window", None)
        return window

    @property
    def spatial_positions(self) -> bool:
        """Whether a visual token's position has several coordinates."""
        return "mrope_section" in (getattr(self.decoder.config, "rope_parameters", None) or ())

    def visual_mask(self, input_ids: Tensor) -> Tensor:
        """Find the visual tokens by their placeholder ids, ``[B, T]``."""
        config = self.model.config
        ids = [getattr(config, name, None) for name in self.family.visual_ids]
        found = torch.tensor([i for i in ids if i is not None], device=input_ids.device)
        return torch.isin(input_ids, found)

    def rotary(self, states: Tensor, position_ids: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Make cos and sin for other positions than the model would."""
        types = (self.decoder.config.layer_types[layer],) if self.family.rotary_by_type else ()
        return self.decoder.rotary_emb(states, position_ids, *types)

    def padded_mask(self, states: Tensor, valid: Tensor) -> Tensor | None:
        """Make a causal mask of ``states`` ``[B, T, D]`` in the form that the attention takes.

        ``valid`` ``[B, T]`` marks the tokens that may be attended to.
        """
        mask: Tensor | None = create_causal_mask(
            config=self.decoder.config,
            inputs_embeds=states,
            attention_mask=valid,
            past_key_values=None,
        )
        return mask

    def queries(self, call: LayerCall, rows: Tensor) -> Tensor:
        """Project the query rows ``[B, R]`` of a layer, positions applied: ``[B, H, R, E]``."""
        cos, sin = (take(x, rows.to(x.device)) for x in call.rotary)
        return self._projected(call.index, "q", take(call.states, rows), (cos, sin))

    def keys(self, call: LayerCall) -> Tensor:
        """Give the keys of all tokens of a layer, ``[B, G, T, E]``: as noted if it ran."""
        if call.tap is not None and call.tap.keys is not None:
            return call.tap.keys
        if call.cache is not None and call.index < len(call.cache.layers):
            cached = call.cache.layers[call.index].keys
            if cached is not None and cached.shape[-2] == call.states.shape[1]:
                return cached
        return self._projected(call.index, "k", call.states, call.rotary)

    def _projected(
        self, index: int, name: str, states: Tensor, rotary: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Project states ``[B, T, D]`` to a layer's queries "q" or keys "k": ``[B, heads, T, E]``.

        Rotary positions are applied; all supported families rotate halves.
        """
        layer = self.layers[index]
        device, attention = device_of(layer), layer.self_attn
        with gathered(layer):
            normed = layer.input_layernorm(states.to(device))
            heads = getattr(attention, f"{name}_proj")(normed)
            heads = heads.view(*normed.shape[:-1], -1, attention.head_dim)
            norm = getattr(attention, f"{name}_norm", None)
            heads = (heads if norm is None else norm(heads)).transpose(1, 2)
        cos, sin = (x.to(device).unsqueeze(1) for x in rotary)
        first, second = heads.chunk(2, dim=-1)
        return heads * cos + torch.cat([-second, first], dim=-1) * sin

    def attention_rows(self, call: LayerCall, rows: Tensor) -> Tensor:
        """Compute the attention probabilities of a few query rows, ``[B, H, R, T]``, in float32.

        Each key gets what it would have by itself beside the others as they are weighed.
        """
        queries, keys = self.queries(call, rows), self.keys(call)
        batch, heads, count, width = queries.shape
        grouped = queries.reshape(batch, keys.shape[1], -1, width)
        logits = (grouped @ keys.mT).reshape(batch, heads, count, -1).float().to(rows.device)
        logits = logits * self.layers[call.index].self_attn.scaling
        allowed = _allowed(call.mask, rows, call.states.shape[1])
        logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
        if call.weights is None or bool((call.weights == 1).all()):
            return torch.softmax(logits, dim=-1)
        counted = logits + call.weights.log().to(logits)[:, None, None]
        return torch.exp(logits - torch.logsumexp(counted, dim=-1, keepdim=True))

    def run_layer(self, call: LayerCall) -> Tensor:
        """Run one layer by itself, without the hooks it may carry and without a cache."""
        layer = self.layers[call.index]
        with gathered(layer):
            states: Tensor = layer.forward(
                call.states,
                attention_mask=call.mask,
                position_ids=call.position_ids,
                past_key_values=None,
                position_embeddings=call.rotary,
            )
        return states


def load_backbone(
    source: str | Path | PreTrainedModel | Backbone,
    *,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device | None = None,
    device_map: str | None = None,
    attn_implementation: str | None = None,
) -> Backbone:
    """Load and freeze a model.

    >>> backbone = load_backbone("miniature")
    >>> backbone.num_layers, backbone.dims.hidden
    (12, 128)

    Args:
        source: "miniature", a hub id or a local folder; a model in memory stays as and where it is.
        dtype: of the weights, or its name; "auto" is the checkpoint's own. If None, float32 on a
            CPU, else "auto".
        device: where the model is put; if None, the accelerator that torch sees, else the CPU.
        device_map: how transformers spreads the model over devices, such as "auto"; instead of
            ``device``.
        attn_implementation: as of transformers.
    """
    if device is not None and device_map is not None:
        raise ConfigError(
            f"expected a device or a device_map; found both, {str(device)!r} and {device_map!r}. "
            "Leave one out"
        )
    if isinstance(source, Backbone):
        return source
    if isinstance(source, PreTrainedModel):
        return Backbone(source)
    source = locate(source)
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as failure:
        raise BackboneError(
            f"expected a model id or a folder with a config.json, found {str(source)!r}: {failure}"
        ) from None
    family_of(config)
    place = device_map or str(device or default_device())
    on_cpu = "cpu" in (place, default_device().type)
    try:
        model = AutoModelForImageTextToText.from_pretrained(
            source,
            dtype=dtype or (torch.float32 if on_cpu else "auto"),
            device_map=place,
            attn_implementation=attn_implementation,
        )
    except (ImportError, ValueError) as failure:  # of transformers, such as a missing kernel
        raise BackboneError(f"cannot load {source} with these settings: {failure}") from None
    return Backbone(model)


def _allowed(mask: Tensor | None, rows: Tensor, tokens: int) -> Tensor:
    """Mask of keys that each query row may attend to, ``[B, 1, R, T]``, from any mask form."""
    mask = None if mask is None else mask.to(rows.device)
    if mask is not None and mask.ndim == 4:
        picked = mask.take_along_dim(rows[:, None, :, None], dim=2)
        return picked if picked.dtype == torch.bool else picked >= 0
    causal = torch.arange(tokens, device=rows.device) <= rows[..., None]
    if mask is not None:
        causal = causal & mask[:, None, :tokens].bool()
    return causal[:, None]
