"""Operate: what becomes of the tokens that are not kept (Eqs. 2-8, Definition 2.1, Listing 1).

One differentiable map from K anchors and M candidates to K new anchors. Five numbers decide whether
the candidates are removed (prune), added to their nearest anchor (merge), spread over all anchors
(pool), felt only as a rescaling (reweight), or anything in between. This file knows tensors only:
which tokens are anchors is settled in `select`, which numbers to use in `eos.space`.

Where the listing normalises and gates copies of the candidates, we scale rows and columns of the
small M x K matrices instead; no second tensor of the candidates' size is ever made.
"""

from math import inf, isnan
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from eos.errors import ConfigError, numbered

Parameter: TypeAlias = float | Tensor
Norm: TypeAlias = Literal["token", "frobenius"]

EPS = 1e-12  # ε of Eq. 2, as of torch's `normalize`: shorter vectors resemble nothing
BETA = 10.0  # β of Eq. 4
TAU_FLOOR = 1e-12  # a τ *tensor* may be driven to 0; a τ *float* of 0 is the exact limit instead
HUGE = 1e15  # above it the squares of float32 entries may overflow
COLUMN_BLOCKS = 16  # measured: the transfer of one sample runs 1.1-1.3x faster than as one matmul


RANGES = {  # of the five parameters; θ above 1 shuts the gate for good, which is no error
    "gamma": (0.0, 1.0),
    "tau": (0.0, inf),
    "theta": (-inf, inf),
    "rho": (0.0, inf),
    "nu": (0.0, 1.0),
}


class Omega(NamedTuple):
    """The operator tuple Ω of one layer (Eq. 8)."""

    gamma: Parameter
    tau: Parameter
    theta: Parameter
    rho: Parameter
    nu: Parameter

    @property
    def prunes(self) -> bool:
        """Whether the candidates leave no trace at all: γ = ρ = 0, exactly."""
        return is_exactly(self.gamma, 0.0) and is_exactly(self.rho, 0.0)


def unified_operator(
    anchors: Tensor,
    candidates: Tensor,
    scores: Tensor,
    *,
    gamma: Parameter,
    tau: Parameter,
    theta: Parameter,
    rho: Parameter,
    nu: Parameter,
    beta: float = BETA,
    norm: Norm = "token",
) -> Tensor:
    """Fold M reduction candidates into K anchors (Definition 2.1).

    >>> anchors, candidates = torch.eye(2), torch.tensor([[0.5, 0.1]])
    >>> merge = {"gamma": 1.0, "tau": 0.0, "theta": float("-inf"), "rho": 0.0, "nu": 0.0}
    >>> unified_operator(anchors, candidates, torch.zeros(1), **merge)
    tensor([[1.5000, 0.1000],
            [0.0000, 1.0000]])

    Args:
        anchors: kept tokens A, ``[..., K, D]``.
        candidates: the other tokens D, ``[..., M, D]``.
        scores: importance q of the candidates, ``[..., M]``.
        gamma: information transfer γ in [0, 1]; 0 moves nothing.
        tau: assignment temperature τ ≥ 0; ``0.0`` is exact nearest-anchor assignment (the first of
            tied anchors), ``inf`` exact uniform assignment.
        theta: similarity threshold θ of the transfer gate; ``-inf`` opens the gate for every token.
        rho: anchor reweighting ρ ≥ 0.
        nu: norm preservation ν in [0, 1].
        beta: sharpness β of the transfer gate.
        norm: what ν preserves: every token's norm (Listing 1) or the Frobenius norm (Eq. 6).

    Each of the five parameters is a float, or a tensor that takes gradients: a scalar, or one value
    a sample in the leading shape ``[...]``. Half-precision inputs are computed in float32. With
    M = 0, or γ = ρ = 0 as floats, nothing is computed and ``anchors`` itself is returned.

    Returns:
        The new anchors, ``[..., K, D]``, in the order and dtype of ``anchors``.
    """
    omega = Omega(gamma, tau, theta, rho, nu)
    _check(anchors, candidates, scores, omega, norm)
    if candidates.shape[-2] == 0 or omega.prunes:
        return anchors
    with torch.autocast(anchors.device.type, enabled=False):
        work = torch.promote_types(anchors.dtype, torch.float32)
        a, d, q = anchors.to(work), candidates.to(work), scores.to(work)
        columns = Omega(*(_column(value, work) for value in omega))
        return _operate(a, d, q, columns, beta, norm).to(anchors.dtype)


def mass_received(
    anchors: Tensor,
    candidates: Tensor,
    leaving: Tensor,
    *,
    tau: Parameter,
    theta: Parameter,
) -> Tensor:
    """Share the attention weights of M candidates among the K anchors that stand for them.

    What Eq. 5 does with states, done with weights: Wᵀ(w ⊙ m), W of Eq. 3 and m of Eq. 4. An anchor
    with the weight of n equal tokens takes part in a softmax exactly as these n tokens would.

    >>> anchors, candidates = torch.eye(2), torch.tensor([[0.9, 0.1], [0.8, 0.0], [0.1, 0.7]])
    >>> mass_received(anchors, candidates, torch.ones(3), tau=0.0, theta=float("-inf"))
    tensor([2., 1.])

    Args:
        anchors: kept tokens, ``[..., K, D]``.
        candidates: the other tokens, ``[..., M, D]``.
        leaving: their attention weights, ``[..., M]``.
        tau: assignment temperature τ.
        theta: similarity threshold θ of the transfer gate.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        a, d = (torch.nn.functional.normalize(x.float(), dim=-1) for x in (anchors, candidates))
        similarity = d @ a.mT
        nearest = similarity.amax(dim=-1, keepdim=True)
        tau, theta = (_column(value, torch.float32) for value in (tau, theta))
        shares = _assignment(similarity, nearest.detach(), tau) * _gate(nearest, theta, BETA)
        found = (shares * leaving.float().unsqueeze(-1)).sum(dim=-2)
        return found.expand(*found.shape[:-1], anchors.shape[-2])


def _operate(a: Tensor, d: Tensor, q: Tensor, omega: Omega, beta: float, norm: Norm) -> Tensor:
    gamma, tau, theta, rho, nu = omega
    a_norm, d_norm = (torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (a, d))
    if _overflows(a_norm, d_norm):
        # The operator is homogeneous of degree one: leave the range of float32 and come back.
        scale = _power_of_two(a, d)
        return scale * _operate(a / scale, d / scale, q, omega, beta, norm)

    if is_exactly(tau, inf) and is_exactly(theta, -inf) and is_exactly(rho, 0.0):
        similarity = a.new_zeros(()).expand(*d.shape[:-1], a.shape[-2])  # pooling never looks at it
    else:
        similarity = _divide(d @ a.mT, d_norm.clamp_min(EPS))  # Eq. 2
        similarity = _divide(similarity, a_norm.clamp_min(EPS).mT)
    out = a
    if not is_exactly(gamma, 0.0):
        nearest = similarity.amax(dim=-1, keepdim=True)
        assignment = _assignment(similarity, nearest.detach(), tau)
        out = _transfer(a, _multiply(assignment, _gate(nearest, theta, beta) * gamma), d)  # Eq. 5
    factor: Parameter = 1.0
    if not is_exactly(rho, 0.0):
        factor = 1.0 + rho * _importance(similarity, q)  # Eq. 6, left
    if not is_exactly(nu, 0.0):
        factor = factor * ((1.0 - nu) + nu * _restoring(a_norm, out, factor, norm))  # Eq. 6, right
    if is_exactly(factor, 1.0):
        return out
    return out * factor if out is a else _multiply(out, factor)


def main_anchors(anchors: Tensor, candidates: Tensor, omega: Omega) -> tuple[Tensor, Tensor]:
    """Find where most of each candidate goes: its anchor ``[M]``, and what share of it ``[M]``."""
    unit = torch.nn.functional.normalize
    similarity = unit(candidates, dim=-1) @ unit(anchors, dim=-1).mT
    nearest = similarity.amax(dim=-1, keepdim=True)
    assignment = _assignment(similarity, nearest, omega.tau).expand_as(similarity)
    shares = omega.gamma * _gate(nearest, omega.theta, BETA) * assignment
    return similarity.argmax(dim=-1), shares.amax(dim=-1)


def _assignment(similarity: Tensor, nearest: Tensor, tau: Parameter) -> Tensor:
    """Share candidates among the anchors: W of Eq. 3, ``[..., M, K]`` (``[..., M, 1]`` if even)."""
    if is_exactly(tau, inf):
        return torch.full_like(nearest, 1.0 / similarity.shape[-1])
    if is_exactly(tau, 0.0):
        winner = similarity.argmax(dim=-1, keepdim=True)
        return torch.zeros_like(similarity).scatter_(-1, winner, 1.0)
    if isinstance(tau, Tensor):
        tau = tau.clamp_min(TAU_FLOOR)
    # softmax ignores the shift; with it, the derivative in a small τ is free of cancellation
    return torch.softmax(_divide(similarity - nearest, tau), dim=-1)


def _gate(nearest: Tensor, theta: Parameter, beta: float) -> Parameter:
    """Open the transfer gate m of Eq. 4 to candidates that resemble an anchor, ``[..., M, 1]``."""
    if is_exactly(theta, -inf):
        return 1.0
    return torch.sigmoid(beta * (nearest - theta))


def _transfer(a: Tensor, weights: Tensor, d: Tensor) -> Tensor:
    """Add ``weightsᵀ d`` to the anchors (Eq. 5)."""
    width, batch = d.shape[-1], d.shape[:-2].numel()
    if weights.shape[-1] == 1 or batch != 1 or width % COLUMN_BLOCKS:
        return a + weights.mT @ d
    # One sample alone: multiply it as a batch of column blocks, each of which fits a core's cache.
    kept, other = a.shape[-2], d.shape[-2]
    rows = weights.reshape(other, kept).mT.expand(COLUMN_BLOCKS, kept, other)
    columns = d.reshape(other, COLUMN_BLOCKS, -1).transpose(0, 1)
    moved = torch.bmm(rows, columns).transpose(0, 1)
    return (a.reshape(kept, COLUMN_BLOCKS, -1) + moved).reshape(a.shape)


def _importance(similarity: Tensor, q: Tensor) -> Tensor:
    """Rate each anchor by the important candidates it stands for (Eq. 7), ``[..., K, 1]``."""
    # summed in the listing's order, so that the reweight corner rounds as its reference does
    shares = _multiply(torch.softmax(similarity, dim=-1), torch.softmax(q, dim=-1).unsqueeze(-1))
    return shares.sum(dim=-2).unsqueeze(-1)


def _restoring(a_norm: Tensor, out: Tensor, factor: Parameter, norm: Norm) -> Tensor:
    """The factor that gives ``out * factor`` the anchors' norm again, ``[..., K or 1, 1]``."""
    now = torch.linalg.vector_norm(out, dim=-1, keepdim=True) * factor
    if norm == "frobenius":
        a_norm, now = (torch.linalg.vector_norm(x, dim=-2, keepdim=True) for x in (a_norm, now))
    restoring: Tensor = a_norm / now.clamp_min(EPS)
    return restoring


def is_exactly(parameter: Parameter, value: float) -> bool:
    """Whether a parameter *is* an exact limit: a tensor never is, since it takes gradients."""
    return not isinstance(parameter, Tensor) and parameter == value


def _divide(fresh: Tensor, by: Parameter) -> Tensor:
    """Divide a tensor without other references: in place unless it takes gradients."""
    return fresh / by if torch.is_grad_enabled() else fresh.div_(by)


def _multiply(fresh: Tensor, by: Parameter) -> Tensor:
    """Multiply a tensor without other references: in place unless it takes gradients."""
    return fresh * by if torch.is_grad_enabled() else fresh.mul_(by)


def _column(parameter: Parameter, dtype: torch.dtype) -> Parameter:
    """Let one value a sample broadcast over tokens and features."""
    return parameter.to(dtype)[..., None, None] if isinstance(parameter, Tensor) else parameter


def _overflows(*norms: Tensor) -> bool:
    return not torch.compiler.is_compiling() and any(bool(x.amax() > HUGE) for x in norms)


def _power_of_two(*tokens: Tensor) -> Tensor:
    """A power of two near each sample's largest entry, at least 1: dividing by it loses no bits."""
    peaks = [
        torch.linalg.vector_norm(x.detach(), ord=inf, dim=(-2, -1), keepdim=True) for x in tokens
    ]
    return torch.stack(peaks).amax(dim=0).clamp_min(1.0).log2().floor().exp2()


def _check(anchors: Tensor, candidates: Tensor, scores: Tensor, omega: Omega, norm: str) -> None:
    """Refuse shapes and values the operator is not defined for, all of them at once."""
    problems = []
    shapes = (
        f"anchors {[*anchors.shape]}, candidates {[*candidates.shape]}, scores {[*scores.shape]}"
    )
    fits = (
        anchors.ndim >= 2
        and candidates.shape[:-2] == anchors.shape[:-2]
        and candidates.shape[-1:] == anchors.shape[-1:]
        and scores.shape == candidates.shape[:-1]
    )
    if not fits:
        problems.append(
            f"expected anchors [..., K, D], candidates [..., M, D], scores [..., M]; found {shapes}"
        )
    elif anchors.shape[-2] == 0:
        problems.append(
            f"expected at least one anchor, found none ({shapes}); keep one token or more"
        )
    for name, value in omega._asdict().items():
        low, high = RANGES[name]
        if not isinstance(value, Tensor) and (isnan(value) or not low <= value <= high):
            problems.append(f"expected {name} in [{low:g}, {high:g}], found {value}")
    if norm not in ("token", "frobenius"):
        problems.append(f"expected norm 'token' or 'frobenius', found {norm!r}")
    if problems:
        raise ConfigError(numbered(problems))
