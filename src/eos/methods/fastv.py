"""FastV (arXiv 2403.06764): prune once, early, by the attention of the last prompt token.

The attention is that of layer K - 1, averaged over heads; the top-k is taken before layer K, and
the kept tokens stay at their original positions.
"""

from eos.errors import ConfigError
from eos.methods import Method, Preset
from eos.operator.scorers import Scorer, attention_received


def keep_count(tokens: int, pruned_frac: float) -> int:
    """Count the kept tokens for FastV's ratio R, the fraction *pruned*.

    Halves go to the even neighbour, as Python rounds: of 573 tokens R = 0.5 keeps 286, of 575 it
    keeps 288.
    """
    if not 0.0 <= pruned_frac < 1.0:
        raise ConfigError(f"expected a pruned fraction in [0, 1), found {pruned_frac}")
    return round(tokens * (1 - pruned_frac))


METHOD = Method(
    paper="arXiv 2403.06764",
    title="An Image is Worth 1/2 Tokens After Layer 2",
    scorers={"last-query": Scorer(attention_received, rows="last")},
    presets=(
        Preset(
            name="fastv",
            what="Prune once, after layer 1 (its K = 2), by the last prompt token's attention. "
            "Labels are means of tokens entering a layer.",
            score="last-query",
            layers=(1,),
            published={192: (166,), 128: (98,), 64: (30,)},
        ),
    ),
)
