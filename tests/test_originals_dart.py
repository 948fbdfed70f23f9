"""DART: its defining properties, on cases worked by hand (no run of the original is recorded)."""

import pytest
import torch

from eos import ConfigError
from eos.methods.dart import dart_keep


def directions(*degrees):
    angle = torch.tensor(degrees, dtype=torch.float32).deg2rad()
    return torch.stack([angle.cos(), angle.sin()], dim=-1)[None]


NORMS = torch.tensor([[9.0, 1, 1, 1, 1, 8, 1, 1]])
VISUAL = directions(0, 20, 40, 60, 80, 100, 150, 170)
TEXT_NORMS, TEXT = torch.tensor([[1.0, 5.0]]), directions(205, 100)


def kept(keep, **pivots):
    return dart_keep(NORMS, TEXT_NORMS, VISUAL, TEXT, keep=keep, **pivots)[0].tolist()


def test_pivots_stay_and_the_least_similar_follow_without_replacement():
    assert kept(2, image_pivots=2, text_pivots=1) == [0, 5]  # the largest norms
    # pivot 0 (0°) takes 170°; pivot 5 (100°) takes 20°, the text pivot (100°) then 40°
    assert kept(5, image_pivots=2, text_pivots=1) == [0, 1, 2, 5, 7]


def test_what_is_left_over_goes_to_the_first_pivots():
    assert kept(3, image_pivots=2, text_pivots=1) == [0, 5, 7]
    assert kept(4, image_pivots=2, text_pivots=1) == [0, 1, 5, 7]
    assert kept(8, image_pivots=2, text_pivots=1) == list(range(8))


def test_the_text_with_the_largest_key_norm_chooses_and_is_not_kept():
    # 100° is the pivot: 0° is farthest, then 20°; asked of 205°, it would be 20° and 40°
    assert kept(2, image_pivots=0, text_pivots=1) == [0, 1]
    other = dart_keep(
        NORMS, TEXT_NORMS.flip(1), VISUAL, TEXT, keep=2, image_pivots=0, text_pivots=1
    )
    assert other[0].tolist() == [1, 2]


def test_norms_choose_pivots_and_directions_the_rest():
    torch.manual_seed(0)
    norms, words = torch.rand(3, 60), torch.rand(3, 9)
    visual, text = torch.randn(3, 60, 16), torch.randn(3, 9, 16)
    found = dart_keep(norms, words, visual, text, keep=20)
    assert found.shape == (3, 20)
    assert (found.diff(dim=-1) > 0).all()
    for i in range(3):
        assert set(norms[i].topk(4).indices.tolist()) <= set(found[i].tolist())
        one = slice(i, i + 1)
        alone = dart_keep(norms[one], words[one], visual[one], text[one], keep=20)
        assert torch.equal(alone[0], found[i])
    assert torch.equal(dart_keep(norms, words, 3 * visual, 2 * text, keep=20), found)
    # controls: other norms choose other pivots, and the most similar tokens are not the least
    assert not torch.equal(dart_keep(1 - norms, words, visual, text, keep=20), found)
    assert not torch.equal(dart_keep(norms, 1 - words, visual, text, keep=20), found)


def test_the_published_count_is_that_of_an_even_share():
    """Follow the method literally where it is well defined: 4 image pivots and 8 times 16 more."""
    torch.manual_seed(1)
    norms, words = torch.rand(1, 576), torch.rand(1, 30)
    visual, text = torch.randn(1, 576, 32), torch.randn(1, 30, 32)
    expected = set(norms[0].topk(4).indices.tolist())
    pivots = [visual[0, i] for i in norms[0].topk(4).indices.tolist()]
    pivots += [text[0, i] for i in words[0].topk(4).indices.tolist()]
    for pivot in pivots:
        likeness = {
            i: torch.cosine_similarity(pivot, visual[0, i], dim=0).item()
            for i in range(576)
            if i not in expected
        }
        expected |= set(sorted(likeness, key=lambda i: likeness[i])[:16])
    found = dart_keep(norms, words, visual, text, keep=132)
    assert found[0].tolist() == sorted(expected)


@pytest.mark.parametrize(
    ("keep", "pivots", "message"),
    [
        (9, {"image_pivots": 2, "text_pivots": 1}, "found 9"),
        (1, {"image_pivots": 2, "text_pivots": 1}, "between 2"),
        (0, {"image_pivots": 0, "text_pivots": 1}, "between 1"),
        (4, {}, "at most 2 of them"),
        (4, {"image_pivots": 0, "text_pivots": 0}, "some pivots"),
    ],
)
def test_refusals(keep, pivots, message):
    with pytest.raises(ConfigError, match=message):
        kept(keep, **pivots)
