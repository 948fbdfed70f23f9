"""State norm: prune by the length of the hidden states. A baseline of EOS, not from a paper.

Needs no attention and no text; what a scorer gains over this one it owes to looking further than
one token's own state.
"""

from torch import Tensor

from eos.methods import Method, Preset
from eos.operator.scorers import Evidence, Scorer


def state_norm(evidence: Evidence) -> Tensor:
    """Measure the L2 norm of the hidden states (a baseline, not from a paper)."""
    return evidence.states.float().square().sum(dim=-1).sqrt()


METHOD = Method(
    paper="a baseline of EOS",
    scorers={"state-norm": Scorer(state_norm)},
    presets=(
        Preset(
            name="state-norm",
            what="Keep the tokens with the longest hidden states, after layer 1.",
            score="state-norm",
            layers=(1,),
            published={192: (192,), 128: (128,), 64: (64,)},
        ),
    ),
)
