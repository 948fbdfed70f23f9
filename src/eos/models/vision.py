"""Vision: a CLIP tower's class attention on the patches, computed from its last two layers.

Pre-hooks record what enters those layers; attention rows and keys are then computed from the
layers' own weights, only those that are needed. Towers without a class token are not supported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from eos.errors import BackboneError
from eos.models.backbone import Backbone
from eos.tokens import Vision


@dataclass
class VisionTap:
    """Records the inputs of the tower's last two layers during one forward pass."""

    backbone: Backbone
    inputs: dict[int, Tensor] = field(default_factory=dict)

    def layers(self) -> nn.ModuleList:
        """The tower's layers; an error if the tower has no class token that we can read."""
        config = self.backbone.model.config
        if not self.backbone.family.has_class_attention(config):
            tower = getattr(config, "vision_config", None)
            reads = getattr(config, "vision_feature_layer", None)
            raise BackboneError(
                "expected a LLaVA model whose projector reads layer -2 of a CLIP tower, which has "
                f"a class token; found {config.model_type} with "
                f"{getattr(tower, 'model_type', 'none')} and layer {reads}. Use a scorer that does "
                "not read the vision tower"
            )
        layers: nn.ModuleList = self.backbone.multimodal.vision_tower.encoder.layers
        return layers

    def attach(self) -> list[Any]:
        """Hook the last two layers; the caller removes the hooks."""
        layers = self.layers()
        return [
            layers[place].register_forward_pre_hook(partial(self._note, place), with_kwargs=True)
            for place in (-2, -1)
        ]

    def _note(
        self, place: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.inputs[place] = args[0] if args else kwargs["hidden_states"]

    def take(self, states: Sequence[Tensor] | None) -> None:
        """Use a tower's last hidden states, `LAST_STATES` or more; None if they are not known."""
        self.inputs.clear()
        if states is not None:
            self.inputs.update({-2: states[-3], -1: states[-2]})

    def read(self) -> Vision:
        """Compute the evidence from the recorded inputs, one row for each image."""
        if not self.inputs:
            raise BackboneError(
                "expected pixel_values, which the vision tower encodes; found image features only"
            )
        layers, before, after = self.layers(), self.inputs[-2], self.inputs[-1]
        attention = layers[-2].self_attn
        normed = layers[-2].layer_norm1(before)
        heads = (*normed.shape[:-1], -1, attention.head_dim)
        keys = attention.k_proj(normed).view(heads).transpose(1, 2)
        query = attention.q_proj(normed[:, :1]).view(len(normed), 1, -1, attention.head_dim)
        logits = query.transpose(1, 2) @ keys.mT * attention.scale
        last, final = layers[-1].self_attn, layers[-1].layer_norm1(after)
        return Vision(
            states=after,
            cls_attention=torch.softmax(logits.float(), dim=-1).squeeze(2),
            keys=keys.mean(dim=1),
            last=(last.q_proj(final), last.k_proj(final)),
            project=self.backbone.multimodal.multi_modal_projector,
        )
