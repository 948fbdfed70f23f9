"""VisionZip (arXiv 2412.04467): dominant tokens by class attention, the rest zipped into a few.

Works on the vision tower's output with its class token, before the projector. Decides the tokens,
not the layer they come from (upstream: the last but one, for states, attention and keys alike).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.methods import Method, Preset
from eos.operator.combine import Combined, OwnOperator, in_front, vision_of
from eos.operator.scorers import Evidence
from eos.operator.select import select
from eos.tokens import take

CONTEXTUAL_SHARE = 10 / 64  # of all tokens: 10 of 64, 20 of 128, 30 of 192


@dataclass(frozen=True)
class Zipped:
    """Tokens after zipping.

    Attributes:
        states: dominant tokens in spatial order, then contextual ones,
            ``[B, dominant + contextual, D]``.
        kept: indices of the dominant tokens, ``[B, dominant]``, ascending; the class token is 0.
        targets: index of the token each contextual one grew from, ``[B, contextual]``, ascending.
    """

    states: Tensor
    kept: Tensor
    targets: Tensor


def contextual(evidence: Evidence, scores: Tensor, *, keep: int, sizes: Tensor | None) -> Combined:
    """Zip the image before the projector, class token included (VisionZip, arXiv 2412.04467)."""
    vision = vision_of(evidence)
    share = round(keep * CONTEXTUAL_SHARE)
    zipped = zip_tokens(
        vision.states, vision.cls_attention, vision.keys, dominant=keep - share, contextual=share
    )
    return in_front(vision.project(zipped.states), scores)


def zip_tokens(
    states: Tensor, cls_attention: Tensor, keys: Tensor, *, dominant: int, contextual: int
) -> Zipped:
    """Keep the class token and the ``dominant - 1`` patches it attends to most; zip the others.

    Args:
        states: class token and patches, ``[B, 1 + N, D]``.
        cls_attention: attention probabilities of the class token, ``[B, H, 1 + N]``.
        keys: averaged over heads, ``[B, 1 + N, C]``.
        dominant: tokens kept as they are, the class token included.
        contextual: tokens that stand for all others: evenly spaced ones among them, each *plus* the
            mean of those whose keys resemble its own most (a sum, not an average).
    """
    _check(states, cls_attention, keys, dominant=dominant, contextual=contextual)
    received = cls_attention.sum(dim=1)
    received = torch.cat([torch.full_like(received[:, :1], torch.inf), received[:, 1:]], dim=1)
    chosen = select(received, dominant)
    rest = take(states, chosen.dropped)
    is_target = _evenly_spaced(rest.shape[1], contextual).to(states.device)
    unit = torch.nn.functional.normalize(take(keys, chosen.dropped), dim=-1)
    nearest = (unit @ unit[:, is_target].mT).argmax(dim=-1)
    joins = torch.nn.functional.one_hot(nearest, contextual).to(states.dtype)
    joins = joins * ~is_target.unsqueeze(-1)  # [B, rest, contextual]
    joined = joins.mT @ rest / joins.sum(dim=1).clamp_min(1).unsqueeze(-1)
    zipped = torch.cat([take(states, chosen.kept), rest[:, is_target] + joined], dim=1)
    return Zipped(zipped, chosen.kept, chosen.dropped[:, is_target])


def _evenly_spaced(tokens: int, count: int) -> Tensor:
    """Mark the first ``count`` of every ``tokens // count``-th token, ``[tokens]``."""
    mask = torch.zeros(tokens, dtype=torch.bool)
    step = tokens // count
    mask[: count * step : step] = True
    return mask


def _check(
    states: Tensor, cls_attention: Tensor, keys: Tensor, *, dominant: int, contextual: int
) -> None:
    batch, tokens = states.shape[:2]
    if keys.shape[:2] != (batch, tokens) or cls_attention.shape[::2] != (batch, tokens):
        raise ConfigError(
            "expected states [B, 1 + N, D], class attention [B, H, 1 + N], keys [B, 1 + N, C]; "
            f"found {[*states.shape]}, {[*cls_attention.shape]}, {[*keys.shape]}"
        )
    if dominant < 1 or contextual < 1 or dominant + contextual > tokens:
        raise ConfigError(
            f"expected at least 1 dominant and 1 contextual token, at most {tokens} in all; found "
            f"{dominant} and {contextual}"
        )


CONTEXTUAL = OwnOperator("contextual", contextual, needs=("vision",))
PUBLISHED = {192: (192,), 128: (128,), 64: (64,)}
METHOD = Method(
    paper="arXiv 2412.04467",
    title="VisionZip: Longer is Better but Not Necessary in Vision Language Models",
    operators=(CONTEXTUAL,),
    presets=(
        Preset(
            name="visionzip-original",
            what="Dominant patches, the class token itself, and contextual tokens zipped before "
            "the projector.",
            score="cls-attention",
            layers=(-1,),
            published=PUBLISHED,
            positions="reindex",
            operator=CONTEXTUAL,
        ),
        Preset(
            name="visionzip",
            what="Keep the patches that the vision tower's class token attends to, before the "
            "decoder.",
            score="cls-attention",
            layers=(-1,),
            published=PUBLISHED,
            positions="reindex",
        ),
    ),
)
