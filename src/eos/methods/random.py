"""Random: the control that any scorer must beat."""

import torch
from torch import Tensor

from eos.methods import Method, Preset
from eos.operator.scorers import Evidence, Scorer


def random_score(evidence: Evidence) -> Tensor:
    """Draw one score a token, the same in every sample and on every device for the same seed."""
    generator = torch.Generator().manual_seed(evidence.seed)
    drawn = torch.rand(evidence.states.shape[1], generator=generator)
    return drawn.to(evidence.states.device).expand(evidence.states.shape[:2])


METHOD = Method(
    paper="a control",
    scorers={"random": Scorer(random_score)},
    presets=(
        Preset(
            name="random",
            what="Keep tokens at random before the decoder, the same for the same seed.",
            score="random",
            layers=(-1,),
            published={192: (192,), 128: (128,), 64: (64,)},
        ),
    ),
)
