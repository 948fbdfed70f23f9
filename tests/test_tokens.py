"""Taking rows: the same whatever the layout."""

import pytest
import torch

from eos.tokens import take


@pytest.mark.parametrize("samples", [(), (1,), (3,), (2, 3)])
def test_rows_are_taken_sample_by_sample(samples):
    values = torch.randn(*samples, 5, 4, dtype=torch.float64, requires_grad=True)
    index = torch.rand(*samples, 5).argsort(dim=-1)[..., :3]
    found = take(values, index)
    expected = torch.take_along_dim(values, index[..., None], dim=-2)
    assert torch.equal(found, expected)
    assert not torch.equal(found, torch.take_along_dim(values, index.flip(-1)[..., None], dim=-2))
    cotangent = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(x, values, cotangent)[0] for x in (found, expected))
    assert torch.equal(ours, theirs)


def test_views_of_any_layout_can_be_taken_from():
    shared, index = torch.randn(1, 5, 4).expand(3, -1, -1), torch.tensor([[0, 2], [1, 4], [3, 0]])
    assert torch.equal(take(shared, index)[1], shared[0, [1, 4]])
    turned = torch.randn(3, 4, 5).mT
    assert torch.equal(take(turned, index)[2], turned[2, [3, 0]])
