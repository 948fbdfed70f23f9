"""DART (arXiv 2502.11494): keep a few pivots and the visual tokens least like them.

Decides which visual tokens stay, from key norms and normed hidden states of the layer before; needs
no attention. Which layer that is, and which text counts (upstream: what follows the image), is the
caller's choice.
"""

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.methods import Method, Preset
from eos.operator.scorers import Evidence, Scorer, given, key_norm, ranked
from eos.operator.select import highest

PIVOTS = 4  # visual tokens that the choice starts from


def duplication(evidence: Evidence) -> Tensor:
    """Keep what resembles pivot tokens least (DART, arXiv 2502.11494)."""
    text, norms, visual = given(evidence.text, "text")
    pivots = min(PIVOTS, evidence.keep)
    kept = dart_keep(
        key_norm(evidence), norms, visual, text, keep=evidence.keep, image_pivots=pivots
    )
    return ranked(kept, evidence.states.shape[1])


def dart_keep(
    keys_l1_visual: Tensor,
    keys_l1_text: Tensor,
    visual: Tensor,
    text: Tensor,
    *,
    keep: int,
    image_pivots: int = 4,
    text_pivots: int = 4,
) -> Tensor:
    """Keep the image pivots and, for every pivot in turn, the least similar tokens left.

    Args:
        keys_l1_visual: L1 norm of the visual tokens' keys, heads concatenated, ``[B, N]``.
        keys_l1_text: likewise of the text tokens, ``[B, T]``.
        visual: normed hidden states of the visual tokens, ``[B, N, D]``.
        text: likewise of the text tokens, ``[B, T, D]``.
        keep: how many visual tokens stay, image pivots included. Upstream counts these on top: its
            "128" is 132 here.
        image_pivots: visual tokens with the largest key norms.
        text_pivots: text tokens with the largest key norms; they only help to choose.

    Upstream visits pivots in the order of a Python set. Here image pivots come before text pivots,
    each by falling norm, and the first take one token more if ``keep`` cannot be shared evenly.

    Returns:
        Indices of the kept visual tokens, ``[B, keep]``, ascending.
    """
    _check(visual, text, keep=keep, image_pivots=image_pivots, text_pivots=text_pivots)
    own = highest(keys_l1_visual, image_pivots)
    words = _rows(text, highest(keys_l1_text, text_pivots))
    pivots = torch.cat([_rows(visual, own), words], dim=1)
    unit = torch.nn.functional.normalize
    similarity = unit(pivots.float(), dim=-1) @ unit(visual.float(), dim=-1).mT  # [B, P, N]
    taken = torch.zeros_like(keys_l1_visual, dtype=torch.bool).scatter(1, own, True)
    share, more = divmod(keep - image_pivots, pivots.shape[1])
    for i, likeness in enumerate(similarity.unbind(dim=1)):
        order = likeness.masked_fill(taken, torch.inf).argsort(dim=-1, stable=True)
        taken = taken.scatter(1, order[:, : share + (i < more)], True)
    return taken.nonzero()[:, 1].view(len(taken), keep)


def _rows(states: Tensor, index: Tensor) -> Tensor:
    """Gather rows, maybe none at all."""
    return states.take_along_dim(index.unsqueeze(-1), dim=1)


def _check(visual: Tensor, text: Tensor, *, keep: int, image_pivots: int, text_pivots: int) -> None:
    tokens, words = visual.shape[1], text.shape[1]
    if image_pivots < 0 or not 0 <= text_pivots <= words or image_pivots + text_pivots == 0:
        raise ConfigError(
            f"expected some pivots, at most {words} of them from {words} text tokens; found "
            f"{image_pivots} image and {text_pivots} text pivots"
        )
    if not max(1, image_pivots) <= keep <= tokens:
        raise ConfigError(
            f"expected to keep between {max(1, image_pivots)} (the image pivots) and {tokens} "
            f"tokens, found {keep}"
        )


METHOD = Method(
    paper="arXiv 2502.11494",
    title="Stop Looking for Important Tokens in Multimodal Language Models: Duplication Matters "
    "More",
    scorers={"duplication": Scorer(duplication, needs=("keys", "text"), picks=True)},
    presets=(
        Preset(
            name="dart",
            what="Keep what resembles pivot tokens least, after layer 1.",
            score="duplication",
            layers=(1,),
            published={192: (166,), 128: (98,), 64: (30,)},
        ),
    ),
)
