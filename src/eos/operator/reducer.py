"""Reduce: select, gather, operate; one step of any plan as a pure function of its tokens."""

from torch import Tensor

from eos.operator.operate import Norm, Omega, unified_operator
from eos.operator.select import Selection, select
from eos.tokens import Tokens, take


def reduce_tokens(
    tokens: Tokens, scores: Tensor, *, keep: int, omega: Omega, norm: Norm = "token"
) -> tuple[Tokens, Selection]:
    """Reduce N visual tokens to the ``keep`` highest of ``scores`` ``[..., N]``.

    Keeping everything returns ``tokens`` itself; pruning gathers the kept rows and never touches
    the others.
    """
    selected = select(scores, keep)
    if keep == len(tokens):
        return tokens, selected
    states = take(tokens.states, selected.kept)
    if not omega.prunes:
        candidates = take(tokens.states, selected.dropped)
        importance = scores.gather(-1, selected.dropped)
        states = unified_operator(states, candidates, importance, **omega._asdict(), norm=norm)
    return Tokens(states, tokens.positions.gather(-1, selected.kept)), selected
