"""Cutting masks, by hand and against masks made for the shorter text."""

import pytest
import torch

from eos.engine.masks import cut, cut_columns, rebuild

SLOTS = torch.tensor([[0, 1, 4, 5], [0, 2, 3, 5]])


def causal(tokens, dtype=torch.bool, window=None):
    back = torch.arange(tokens)[:, None] - torch.arange(tokens)
    allowed = (back >= 0) & (back < (window or tokens))
    if dtype == torch.bool:
        return allowed[None, None]
    return torch.zeros(1, 1, tokens, tokens).masked_fill(~allowed, torch.finfo(dtype).min)


def test_no_mask_stays_no_mask():
    assert cut(None, SLOTS) is None


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_causal_mask_stays_causal(dtype):
    found = cut(causal(6, dtype), SLOTS)
    assert torch.equal(found, causal(4, dtype).expand(2, -1, -1, -1))


def test_descending_places_would_not_be_causal():
    # the control: that a causal mask stays one rests on ascending places
    found = cut(causal(6), SLOTS.flip(1))
    assert not torch.equal(found, causal(4).expand(2, -1, -1, -1))


def test_padding_follows_its_tokens():
    padding = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
    assert cut(padding, SLOTS).tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]


def test_a_sliding_mask_covers_the_end_of_the_text():
    last_three = torch.ones(1, 1, 1, 3, dtype=torch.bool)
    found = cut_columns(last_three, torch.tensor([[0, 2, 4, 5]]), total=6)
    assert found[0, 0, 0].tolist() == [False, False, True, True]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("new", [1, 2])
def test_rebuilding_gives_the_rows_of_the_full_mask(dtype, window, new):
    valid = torch.ones(2, 4, dtype=torch.bool)
    full = causal(7, dtype, window)[:, :, -new:].expand(2, -1, -1, -1)
    found = rebuild(torch.zeros(1, 1, 1, 1).to(dtype), valid, new=new, later=3, window=window)
    assert torch.equal(found, full)


def test_rebuilding_keeps_padding_out():
    valid = torch.tensor([[False, True, True]])
    four = rebuild(torch.zeros(1, 1, 1, 1, dtype=torch.bool), valid, new=1, later=2)
    assert four[0, 0, 0].tolist() == [False, True, True, True, True]
    two = rebuild(torch.zeros(1, 1, dtype=torch.long), valid, new=1, later=2)
    assert two.tolist() == [[0, 1, 1, 1, 1]]
