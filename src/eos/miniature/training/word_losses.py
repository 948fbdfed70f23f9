"""Word losses: targets for the states and the attention of a question's words in the decoder.

From answers alone a small decoder learns a bag of what the picture shows, not to attend to what a
question names. Below, ``states`` ``[B, T, D]`` are the decoder's after some layer, ``ids``
``[B, T]`` the tokens, ``scenes`` what the pictures show, ``heads`` make the predictions.
"""

from collections.abc import Iterator
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from eos.miniature.language import PAD, vocabulary
from eos.miniature.model import PATCH
from eos.miniature.questions import nearest_object
from eos.miniature.scenes import COLORS, PLURALS, SHAPES, Thing, WorldScene
from eos.miniature.training.forward import ImageAttention
from eos.miniature.training.patch_losses import (
    CONTENTS,
    LOCATION_SCALE,
    MAX_COUNT,
    TINTS,
    AuxiliaryHeads,
    PatchLabels,
)


def grounding_loss(
    heads: AuxiliaryHeads, states: Tensor, ids: Tensor, scenes: list[WorldScene]
) -> Tensor:
    """Predict from every colour's and shape's word what it goes with in the picture.

    A word must attend to the tokens that show it to predict which shapes have its colour or which
    colours its shape has, and how many objects; none, if it is absent.
    """
    words = vocabulary()
    traits = [*COLORS, *SHAPES]
    forms = [(words[name], name) for name in traits]
    forms += [(words[plural], name) for name, plural in PLURALS.items()]
    total, count = states.new_zeros(()), 0
    traits_logits, count_logits = heads.word_traits(states), heads.word_count(states)
    for row, scene in enumerate(scenes):
        shapes = scene.of("shape")
        if not shapes:
            continue
        for word, name in forms:
            here = ids[row] == word
            if here.any():
                with_it = {t.name for t in shapes if t.color == name}
                with_it |= {t.color for t in shapes if t.name == name}
                target = states.new_tensor([float(trait in with_it) for trait in traits])
                logits = traits_logits[row][here]
                total = total + F.binary_cross_entropy_with_logits(
                    logits, target.expand_as(logits), reduction="sum"
                )
                number = min(MAX_COUNT, sum(name in (t.color, t.name) for t in shapes))
                numbers = torch.full((len(logits),), number)
                total = total + F.cross_entropy(count_logits[row][here], numbers, reduction="sum")
                count += len(logits)
    return total / max(1, count)


def object_location_loss(
    heads: AuxiliaryHeads,
    states: Tensor,
    ids: Tensor,
    scenes: list[WorldScene],
    *,
    corner: tuple[int, int],
) -> Tensor:
    """Predict from the last word of an object's name whether it is there, where, and how large.

    What is nearest to it, or left of it, depends on its location. ``corner`` is row and column of
    the pictures' first patch in the full grid.
    """
    places, present, where, large, unique = [], [], [], [], []
    for row, scene in enumerate(scenes):
        for column, named in _named_objects(ids[row], scene) if scene.of("shape") else ():
            x, y = named[0].center if len(named) == 1 else (0.0, 0.0)
            places.append((row, column))
            present.append(float(len(named) > 0))
            where.append((corner[1] + x / PATCH, corner[0] + y / PATCH))
            large.append(float(len(named) == 1 and named[0].size == "large"))
            unique.append(len(named) == 1)
    if not places:
        return states.new_zeros(())
    rows, columns = torch.tensor(places).T
    found = heads.named_object(states[rows, columns])
    loss = F.binary_cross_entropy_with_logits(found[:, 0], found.new_tensor(present))
    known = torch.tensor(unique)
    if known.any():
        target = found.new_tensor(where)[known] / LOCATION_SCALE
        loss = loss + (found[known, 1:3] - target).pow(2).mean()
        sizes = found.new_tensor(large)[known]
        loss = loss + F.binary_cross_entropy_with_logits(found[known, 3], sizes)
    return loss


def nearest_object_loss(
    heads: AuxiliaryHeads, states: Tensor, ids: Tensor, scenes: list[WorldScene]
) -> Tensor:
    """Predict from the last word of an object's name colour and shape of the one nearest to it."""
    places, colors, shapes = [], [], []
    for row, scene in enumerate(scenes):
        for column, named in _named_objects(ids[row], scene):
            other = nearest_object(scene, named[0]) if len(named) == 1 else None
            if other is not None:
                places.append((row, column))
                colors.append(list(COLORS).index(other.color))
                shapes.append(SHAPES.index(other.name))
    if not places:
        return states.new_zeros(())
    rows, columns = torch.tensor(places).T
    found = heads.nearest_object(states[rows, columns])
    by_color, by_shape = found.split([len(COLORS), len(SHAPES)], dim=-1)
    loss = F.cross_entropy(by_color, torch.tensor(colors))
    return loss + F.cross_entropy(by_shape, torch.tensor(shapes))


def _named_objects(ids: Tensor, scene: WorldScene) -> Iterator[tuple[int, list[Thing]]]:
    """Find the shapes' words in a text, and the objects they name with the colours before them."""
    words = {index: word for word, index in vocabulary().items()}
    before = ""
    for column, word in enumerate(words[index] for index in ids.tolist()):
        if word in SHAPES:
            colors = [before] if before in COLORS else list(COLORS)
            shapes = scene.of("shape")
            yield column, [t for t in shapes if t.name == word and t.color in colors]
        before = word


def relevant_patches(ids: Tensor, labels: PatchLabels) -> Tensor:
    """Mask ``[B, W, P]`` of the patches that words ``[B, W]`` after the image should attend to.

    Those that show what the word names, or all that show something.
    """
    content, color = labels.heads["content"], labels.heads["color"]
    named = _named_labels(CONTENTS)[ids].gather(2, content[:, None].expand(-1, ids.shape[1], -1))
    named |= _named_labels(TINTS)[ids].gather(2, color[:, None].expand(-1, ids.shape[1], -1))
    return torch.where(named.any(-1, keepdim=True), named, (content > 0)[:, None])


def attention_loss(attention: ImageAttention, ids: Tensor) -> Tensor:
    """Negative log of the attention of words ``[B, W]`` to relevant patches, summed over layers.

    Prior methods rank visual tokens by this attention.
    """
    supervised = (ids != vocabulary()[PAD]) & attention.relevant.any(-1)  # none on a grey image
    if not supervised.any():
        return torch.zeros(())
    shares = (share.clamp_min(1e-6)[supervised] for share in attention.shares)
    return sum((-share.log().mean() for share in shares), torch.zeros(()))


@cache
def _named_labels(labels: tuple[str, ...]) -> Tensor:
    """Which labels each word of the vocabulary names, ``[V, labels]``."""
    words = vocabulary()
    table = torch.zeros(len(words), len(labels), dtype=torch.bool)
    for place, label in enumerate(labels):
        last = label.split()[-1]
        for form in {last, PLURALS.get(last, last)} & set(words):
            table[words[form], place] = label != "nothing"
    return table
