"""Combine: what a step makes of its tokens, by the unified operator or by a prior method's own.

The unified operator covers what prior methods have in common; where an author's code does more
(recycling, size-weighted means, contextual tokens) a file of `eos.methods` has an `OwnOperator`
that does exactly that, from evidence, scores and a count.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from eos.errors import ConfigError
from eos.operator.operate import Norm, Omega, mass_received, unified_operator
from eos.operator.scorers import Evidence, Need
from eos.operator.select import Selection, select
from eos.tokens import Vision, take


@dataclass(frozen=True)
class Combined:
    """Tokens after a step.

    Attributes:
        states: the new tokens, ``[B, K, D]``; None if they are the old ones at ``places``.
        places: which of the N old places they take, ``[B, K]``, ascending.
        sizes: how many tokens each stands for, ``[B, K]``, if the method counts.
        added: attention weight that they take over from others, ``[B, K]``; None if none.
    """

    states: Tensor | None
    places: Tensor
    sizes: Tensor | None = None
    added: Tensor | None = None


def unified(
    evidence: Evidence,
    scores: Tensor,
    *,
    keep: int,
    omega: Omega,
    norm: Norm,
    mass: float = 0.0,
    weights: Tensor | None = None,
) -> Combined:
    """Select, gather, operate: one step of the unified operator (Definition 2.1).

    ``mass`` is the share of the dropped tokens' attention weights ``[B, N]`` (1 if None) that
    passes to the kept ones.
    """
    selected = select(scores, keep)
    states = fold(evidence.states, scores, selected, omega=omega, norm=norm)
    added = None
    if mass:
        added = mass_added(evidence.states, weights, selected, omega=omega, mass=mass)
    return Combined(states, selected.kept, added=added)


def mass_added(
    states: Tensor, weights: Tensor | None, selected: Selection, *, omega: Omega, mass: float
) -> Tensor:
    """Attention weight that each kept token takes over from the dropped ones, ``[B, K]``.

    Args:
        states: of N tokens, ``[B, N, D]``.
        weights: of them, ``[B, N]``; 1 if None.
        selected: the choice.
        omega: the operator, whose τ and θ say which anchors stand for a dropped token.
        mass: the share that is taken over.
    """
    anchors, candidates = take(states, selected.kept), take(states, selected.dropped)
    ones = torch.ones_like(selected.dropped, dtype=torch.float32)
    leaving = ones if weights is None else weights.gather(-1, selected.dropped)
    return mass * mass_received(anchors, candidates, leaving, tau=omega.tau, theta=omega.theta)


def fold(
    states: Tensor, scores: Tensor, selected: Selection, *, omega: Omega, norm: Norm = "token"
) -> Tensor | None:
    """Fold the dropped of N tokens ``[B, N, D]`` into the kept ones, ``[B, K, D]``.

    None if the kept tokens stay as they are; pruning never reads the others.
    """
    if omega.prunes or not selected.dropped.shape[-1]:
        return None
    anchors, candidates = take(states, selected.kept), take(states, selected.dropped)
    importance = scores.gather(-1, selected.dropped)
    return unified_operator(anchors, candidates, importance, **omega._asdict(), norm=norm)


@dataclass(frozen=True)
class OwnOperator:
    """A prior method's own operator.

    Attributes:
        kind: its name in a plan.
        combine: called with evidence, scores ``[B, N]``, ``keep`` and ``sizes`` ``[B, N]``, which
            are None before a step that counts.
        needs: what of `Evidence` it uses.
        nearest_budget: the smallest number of tokens from a given one on that it can make.
        budgets: those numbers in words, for the error about another one.
    """

    kind: str
    combine: Callable[..., Combined]
    needs: tuple[Need, ...] = ()
    nearest_budget: Callable[[int], int] = int
    budgets: str = "any budget"


def in_front(states: Tensor, scores: Tensor) -> Combined:
    """Let new tokens ``[B, K, D]``, which have no place of their own, take the first places."""
    places = torch.arange(states.shape[1], device=scores.device)
    return Combined(states, places.expand(states.shape[:2]))


def vision_of(evidence: Evidence) -> Vision:
    """Get the vision tower's outputs, or refuse with what to do."""
    if evidence.vision is None:
        raise ConfigError(
            "this operator needs one image a sample and a vision tower with a class token, before "
            "the decoder (layer -1); use the method's fixed point instead"
        )
    return evidence.vision
