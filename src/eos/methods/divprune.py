"""DivPrune (arXiv 2503.02175): keep tokens as far from one another as can be.

Max-min diversity, greedily: no attention, no text, no knowledge of where in a model it acts.
"""

import torch
from torch import Tensor

from eos.methods import Method, Preset
from eos.operator.scorers import Evidence, Scorer, ranked
from eos.operator.select import check_keep


def diversity(evidence: Evidence) -> Tensor:
    """Rank tokens by farthest-point picking (DivPrune, arXiv 2503.02175)."""
    picks = max_min_order(evidence.states.float(), keep=evidence.keep)
    return ranked(picks, evidence.states.shape[1])


def max_min_order(states: Tensor, *, keep: int) -> Tensor:
    """Pick ``keep`` tokens of ``states`` ``[B, N, D]``, each farthest from those picked before.

    Distance is one minus the cosine. The first pick is the token whose nearest neighbour is
    farthest. No token is picked twice, which upstream leaves to its distance to itself being the
    smallest.

    Returns:
        Indices in the order they were picked, ``[B, keep]``; sort them to keep the spatial order.
    """
    tokens = states.shape[1]
    check_keep(keep, tokens)
    unit = torch.nn.functional.normalize(states, dim=-1)
    distance = 1.0 - unit @ unit.mT
    # the smallest distance of a row is to the token itself; a token alone has no other
    gap = distance.topk(min(2, tokens), dim=-1, largest=False).values[..., -1]
    picked: list[Tensor] = []
    nearest = torch.full_like(gap, torch.inf)
    for _ in range(keep):
        pick = gap.argmax(dim=-1, keepdim=True)
        picked.append(pick)
        row = distance.take_along_dim(pick.unsqueeze(-1), dim=1).squeeze(1)
        nearest = torch.minimum(nearest, row).scatter(1, pick, -torch.inf)
        gap = nearest
    return torch.cat(picked, dim=1)


METHOD = Method(
    paper="arXiv 2503.02175",
    title="DivPrune: Diversity-based Visual Token Pruning for Large Multimodal Models",
    scorers={"diversity": Scorer(diversity, picks=True)},
    presets=(
        Preset(
            name="divprune",
            what="Keep the most diverse tokens by max-min distance, before the decoder.",
            score="diversity",
            layers=(-1,),
            published={192: (192,), 128: (128,), 64: (64,)},
            positions="reindex",
        ),
    ),
)
