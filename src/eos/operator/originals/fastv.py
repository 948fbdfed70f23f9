"""FastV (arXiv 2403.06764): how many visual tokens it keeps.

The rest of the method is made of parts that EOS has anyway: the attention of the last prompt token
in layer K - 1, averaged over heads (`eos.operator.scorers`, scorer ``last-query``), the top-k
(`eos.operator.select`) before layer K, and the kept tokens at their original positions.
"""

from eos.errors import ConfigError


def keep_count(tokens: int, pruned_frac: float) -> int:
    """Count the kept tokens for FastV's ratio R, the fraction *pruned*.

    Halves go to the even neighbour, as Python rounds: of 573 tokens R = 0.5 keeps 286, of 575 it
    keeps 288.
    """
    if not 0.0 <= pruned_frac < 1.0:
        raise ConfigError(f"expected a pruned fraction in [0, 1), found {pruned_frac}")
    return round(tokens * (1 - pruned_frac))
