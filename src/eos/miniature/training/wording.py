"""Wording: targets for the words of a question about the picture, to teach the decoder to look.

From answers alone a small decoder learns a bag of what it sees, not to look where a question
points.
"""

from collections.abc import Iterator
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from eos.miniature.language import PAD, vocabulary
from eos.miniature.questions import nearest_object
from eos.miniature.scenes import COLORS, PLURALS, SHAPES, Thing, WorldScene
from eos.miniature.training.sight import Gaze
from eos.miniature.training.supervision import CONTENTS, MOST, REACH, TINTS, DenseHeads, PatchLabels


def grounding_loss(
    heads: DenseHeads, states: Tensor, ids: Tensor, scenes: list[WorldScene]
) -> Tensor:
    """Let every colour's and shape's word in a question know what it goes with in the picture.

    A word must look at the tokens that show it, to say which shapes have its colour or which
    colours its shape has, and how many; none, if it is absent. Questions only need what is then at
    hand.

    Args:
        heads: with a reader of words.
        states: of all tokens half way through the decoder, ``[B, T, D]``.
        ids: token ids, ``[B, T]``.
        scenes: what the pictures show.
    """
    words = vocabulary()
    traits = [*COLORS, *SHAPES]
    forms = [(words[name], name) for name in traits]
    forms += [(words[plural], name) for name, plural in PLURALS.items()]
    total, count = states.new_zeros(()), 0
    scores, tallies = heads.words(states), heads.tally(states)
    for row, scene in enumerate(scenes):
        shapes = scene.of("shape")
        if not shapes:
            continue
        for word, name in forms:
            here = ids[row] == word
            if here.any():
                with_it = {t.name for t in shapes if t.color == name}
                with_it |= {t.color for t in shapes if t.name == name}
                target = scores.new_tensor([float(trait in with_it) for trait in traits])
                asked = scores[row][here]
                total = total + F.binary_cross_entropy_with_logits(
                    asked, target.expand_as(asked), reduction="sum"
                )
                shown = min(MOST, sum(name in (t.color, t.name) for t in shapes))
                numbers = torch.full((len(asked),), shown)
                total = total + F.cross_entropy(tallies[row][here], numbers, reduction="sum")
                count += len(asked)
    return total / max(1, count)


def pointing_loss(
    heads: DenseHeads,
    states: Tensor,
    ids: Tensor,
    scenes: list[WorldScene],
    *,
    corner: tuple[int, int],
    patch: int,
) -> Tensor:
    """Let a shape's word that ends a name know whether the picture has it, where, and how large.

    What is nearest to it, or left of it, can only be asked of a place.

    Args:
        heads: with a reader of names.
        states: of all tokens half way through the decoder, ``[B, T, D]``.
        ids: token ids, ``[B, T]``.
        scenes: what the pictures show.
        corner: row and column of the pictures' first patch in the full grid.
        patch: side of a patch, in pixels.
    """
    places, there, where, large, sure = [], [], [], [], []
    for row, scene in enumerate(scenes):
        for column, meant in _names(ids[row].tolist(), scene) if scene.of("shape") else ():
            x, y = meant[0].center if len(meant) == 1 else (0.0, 0.0)
            places.append((row, column))
            there.append(float(len(meant) > 0))
            where.append((corner[1] + x / patch, corner[0] + y / patch))
            large.append(float(len(meant) == 1 and meant[0].size == "large"))
            sure.append(len(meant) == 1)
    if not places:
        return states.new_zeros(())
    rows, columns = torch.tensor(places).T
    found = heads.named(states[rows, columns])
    loss = F.binary_cross_entropy_with_logits(found[:, 0], found.new_tensor(there))
    known = torch.tensor(sure)
    if known.any():
        target = found.new_tensor(where)[known] / REACH
        loss = loss + (found[known, 1:3] - target).pow(2).mean()
        sizes = found.new_tensor(large)[known]
        loss = loss + F.binary_cross_entropy_with_logits(found[known, 3], sizes)
    return loss


def neighbour_loss(
    heads: DenseHeads, states: Tensor, ids: Tensor, scenes: list[WorldScene]
) -> Tensor:
    """Let the word that ends an object's name know what is nearest to it: which colour and shape.

    Args:
        heads: with a reader of neighbours.
        states: of all tokens late in the decoder, ``[B, T, D]``.
        ids: token ids, ``[B, T]``.
        scenes: what the pictures show.
    """
    places, colors, shapes = [], [], []
    for row, scene in enumerate(scenes):
        for column, meant in _names(ids[row].tolist(), scene):
            other = nearest_object(scene, meant[0]) if len(meant) == 1 else None
            if other is not None:
                places.append((row, column))
                colors.append(list(COLORS).index(other.color))
                shapes.append(SHAPES.index(other.name))
    if not places:
        return states.new_zeros(())
    rows, columns = torch.tensor(places).T
    found = heads.beside(states[rows, columns])
    by_color, by_shape = found.split([len(COLORS), len(SHAPES)], dim=-1)
    loss = F.cross_entropy(by_color, torch.tensor(colors))
    return loss + F.cross_entropy(by_shape, torch.tensor(shapes))


def _names(ids: list[int], scene: WorldScene) -> Iterator[tuple[int, list[Thing]]]:
    """Find the shapes' words in a text, and the objects they name with the colours before them."""
    words = {index: word for word, index in vocabulary().items()}
    before = ""
    for column, word in enumerate(words[index] for index in ids):
        if word in SHAPES:
            colors = [before] if before in COLORS else list(COLORS)
            shapes = scene.of("shape")
            yield column, [t for t in shapes if t.name == word and t.color in colors]
        before = word


def relevant_patches(ids: Tensor, labels: PatchLabels) -> Tensor:
    """Say which patches each word should look at: those it names, or all that show something.

    Args:
        ids: of the words after the image, ``[B, W]``.
        labels: what the patches show.

    Returns:
        ``[B, W, P]``.
    """
    content, color = labels.heads["content"], labels.heads["color"]
    named = _naming(CONTENTS)[ids].gather(2, content[:, None].expand(-1, ids.shape[1], -1))
    named |= _naming(TINTS)[ids].gather(2, color[:, None].expand(-1, ids.shape[1], -1))
    return torch.where(named.any(-1, keepdim=True), named, (content > 0)[:, None])


def looking_loss(gaze: Gaze, ids: Tensor) -> Tensor:
    """Ask words ``[B, W]`` to look at what is relevant, in every layer that was followed.

    What a word looks at is what prior methods rank visual tokens by.
    """
    asked = (ids != vocabulary()[PAD]) & gaze.relevant.any(-1)  # in the dark nothing is
    if not asked.any():
        return torch.zeros(())
    shares = (share.clamp_min(1e-6)[asked] for share in gaze.shares)
    return sum((-share.log().mean() for share in shares), torch.zeros(()))


@cache
def _naming(labels: tuple[str, ...]) -> Tensor:
    """Which labels each word of the vocabulary names, ``[V, labels]``."""
    words = vocabulary()
    table = torch.zeros(len(words), len(labels), dtype=torch.bool)
    for place, label in enumerate(labels):
        last = label.split()[-1]
        for form in {last, PLURALS.get(last, last)} & set(words):
            table[words[form], place] = label != "nothing"
    return table
