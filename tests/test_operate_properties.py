"""What holds for any tokens and any Ω."""

from math import inf

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from eos.evaluation.verify import operated
from eos.operator.operate import Omega

unit = st.floats(0.0, 1.0)
omegas = st.builds(
    Omega,
    unit,
    st.one_of(st.just(0.0), st.just(inf), st.floats(0.05, 20.0)),
    st.one_of(st.just(-inf), st.floats(-1.0, 1.0)),
    st.floats(0.0, 2.0),
    unit,
)


@st.composite
def token_sets(draw, batch=False):
    kept, other, width = draw(st.integers(1, 6)), draw(st.integers(0, 9)), draw(st.integers(2, 32))
    shape = (draw(st.integers(1, 3)),) if batch else ()
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    scale = 10.0 ** draw(st.integers(-4, 4))

    def drawn(*sizes):
        return torch.randn(*shape, *sizes, generator=generator, dtype=torch.float64)

    return drawn(kept, width) * scale, drawn(other, width) * scale, drawn(other)


def close(left, right):
    return torch.allclose(left, right, rtol=1e-9, atol=1e-9 * max(1e-30, right.abs().max().item()))


@given(token_sets(), omegas, st.randoms())
def test_the_order_of_anchors_is_preserved(tokens, omega, random):
    anchors, candidates, scores = tokens
    order = torch.tensor(random.sample(range(len(anchors)), len(anchors)))
    moved = operated((anchors[order], candidates, scores), omega)
    assert close(moved, operated(tokens, omega)[order])


@given(token_sets(), omegas, st.randoms())
def test_the_order_of_candidates_does_not_matter(tokens, omega, random):
    anchors, candidates, scores = tokens
    order = torch.tensor(random.sample(range(len(scores)), len(scores)), dtype=torch.long)
    assert close(
        operated((anchors, candidates[order], scores[order]), omega), operated(tokens, omega)
    )


@given(token_sets(batch=True), omegas)
def test_a_batch_is_a_loop(tokens, omega):
    loop = [operated(sample, omega) for sample in zip(*tokens, strict=True)]
    assert close(operated(tokens, omega), torch.stack(loop))


@given(token_sets(), omegas)
def test_no_transfer_no_reweighting_no_norm_is_the_identity(tokens, omega):
    still = omega._replace(gamma=0.0, rho=0.0, nu=0.0)
    assert torch.equal(operated(tokens, still), tokens[0])
    as_tensors = Omega(*(torch.tensor(x, dtype=torch.float64) for x in still))
    assert torch.equal(operated(tokens, as_tensors), tokens[0])


@given(token_sets(), omegas)
def test_full_norm_preservation_restores_every_norm(tokens, omega):
    restored = operated(tokens, omega._replace(nu=1.0)).norm(dim=-1)
    assert torch.allclose(restored, tokens[0].norm(dim=-1), rtol=1e-9)


@given(token_sets(), omegas)
def test_without_norm_preservation_the_norms_do_change(tokens, omega):
    # the control of the property above: it does not hold by itself
    assume(len(tokens[2]) > 0 and omega.rho > 0.01)
    changed = operated(tokens, omega._replace(gamma=0.0, nu=0.0)).norm(dim=-1)
    assert not torch.allclose(changed, tokens[0].norm(dim=-1), rtol=1e-9)


@given(token_sets(), omegas, st.integers(-8, 8))
def test_scaling_all_tokens_scales_the_result(tokens, omega, power):
    anchors, candidates, scores = tokens
    scaled = operated((anchors * 2.0**power, candidates * 2.0**power, scores), omega)
    assert close(scaled, operated(tokens, omega) * 2.0**power)
