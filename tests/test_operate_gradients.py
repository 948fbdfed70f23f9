"""Derivatives of the operator against float64 finite differences."""

from math import inf

import pytest
import torch

from eos.evaluation.verify import draw, operated
from eos.operator import operate
from eos.operator.operate import Omega

POINTS = {
    "interior": Omega(0.3, 0.22, 0.1, 0.4, 0.5),
    "searched": Omega(0.083, 0.22, 0.1, 0.01, 0.01),
    "soft": Omega(0.6, 1.5, -0.2, 1.2, 0.9),
    "near prune": Omega(1e-3, 0.5, 0.0, 1e-2, 1e-3),
    "near merge": Omega(0.999, 5e-3, -0.3, 1e-2, 1e-3),
    "near pool": Omega(0.999, 50.0, -0.3, 1e-2, 1e-3),
    "near reweight": Omega(1e-3, 0.5, 0.0, 1.5, 1e-3),
    "norm kept": Omega(0.5, 0.3, 0.0, 0.3, 0.999),
    "merge limit": Omega(0.9, 0.0, 0.1, 0.3, 0.2),
    "pool limit": Omega(0.9, inf, 0.1, 0.3, 0.2),
    "open gate": Omega(0.9, 0.3, -inf, 0.3, 0.2),
}
LIMITS = {"tau": (0.0, inf), "theta": (-inf,)}  # values that are no variables
TOLERANCE = 1e-6
STEPS = {"scores": 1e-2, "gamma": 1e-3, "rho": 1e-3, "nu": 1e-3}


def five_point(function, step):
    """Differentiate at 0 with an error of order step^4."""
    near, far = function(step) - function(-step), function(2 * step) - function(-2 * step)
    return (8 * near - far) / (12 * step)


def worst_relative_error(omega, norm="token"):
    """Compare every derivative, of parameters one by one and of tensors in a random direction."""
    tokens = [x.double() for x in draw((6, 11, 16), 7)]
    names = ["anchors", "candidates", "scores", *Omega._fields]
    values = [*tokens, *(torch.tensor(x, dtype=torch.float64) for x in omega)]
    exact = [name for name, limits in LIMITS.items() if omega._asdict()[name] in limits]
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(6, 16, dtype=torch.float64, generator=generator)

    def objective(arguments):
        point = Omega(*arguments[3:])._replace(
            **{name: float(omega._asdict()[name]) for name in exact}
        )
        output = operate.unified_operator(*arguments[:3], **point._asdict(), norm=norm)
        return (output * cotangent).sum()

    errors = {}
    for i, name in enumerate(names):
        if name in exact:
            continue
        direction = torch.randn(values[i].shape, dtype=torch.float64, generator=generator)
        if values[i].ndim == 0:
            direction = torch.ones_like(direction)
        leaf = values[i].clone().requires_grad_()
        arguments = [*values[:i], leaf, *values[i + 1 :]]
        value = objective(arguments)
        gradient = (
            torch.autograd.grad(value, leaf)[0] if value.requires_grad else torch.zeros_like(leaf)
        )
        analytic = (gradient * direction).sum().item()
        step = 1e-4 * values[i].item() if name == "tau" else STEPS.get(name, 1e-4)

        def along(step, i=i, direction=direction):
            return objective([*values[:i], values[i] + step * direction, *values[i + 1 :]]).item()

        numeric = five_point(along, step)
        errors[name] = abs(analytic - numeric) / max(abs(analytic), abs(numeric))
    return errors


@pytest.mark.parametrize("norm", ["token", "frobenius"])
@pytest.mark.parametrize("omega", POINTS.values(), ids=POINTS)
def test_derivatives_are_those_of_the_function(omega, norm):
    errors = worst_relative_error(omega, norm)
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize(
    ("term", "victims"),
    [("_gate", {"anchors", "candidates"}), ("_importance", {"anchors", "candidates", "scores"})],
)
def test_a_detached_term_is_noticed(monkeypatch, term, victims):
    original = getattr(operate, term)
    monkeypatch.setattr(operate, term, lambda first, *rest: original(first, *rest).detach())
    errors = worst_relative_error(POINTS["interior"])
    assert {name for name, error in errors.items() if error > TOLERANCE} >= victims


def test_exact_limits_agree_with_their_neighbourhood():
    tokens = draw((8, 16, 64), 42)
    for limit, near in [(0.0, 1e-5), (inf, 1e8)]:
        point = Omega(0.9, limit, 0.1, 0.3, 0.2)
        assert torch.allclose(
            operated(tokens, point), operated(tokens, point._replace(tau=near)), atol=1e-5
        )
