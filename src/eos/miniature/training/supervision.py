"""Supervision: what each patch of an image shows, to teach the vision tower densely.

From answers alone a small tower hardly learns to tell shapes and digits; told patch by patch it
does in minutes. The heads that read this off are thrown away after training.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from eos.miniature.language import vocabulary
from eos.miniature.scenes import COLORS, LETTERS, SHAPES, Thing, WorldScene

CONTENTS = (
    "nothing",
    *(f"shape {shape}" for shape in SHAPES),
    *(f"digit {digit}" for digit in range(10)),
    *(f"node {letter}" for letter in LETTERS),
    "bar",
    "arrow",
)
TINTS = ("nothing", *COLORS)
PAIRS = tuple((color, shape) for color in COLORS for shape in SHAPES)
HEADS = {  # classes of each head; a label of -1 is ignored
    "content": len(CONTENTS),
    "color": len(TINTS),
    "value": 10,
    "size": 2,
    "source": len(LETTERS),
    "target": len(LETTERS),
}
WEIGHTS = {"value": 0.2, "size": 0.2, "source": 0.5}  # in the loss; one for the others
DIGITS = CONTENTS.index("digit 0")  # where digits stand among them, also as heights of bars
MOST = 6  # objects of a trait that are counted
REACH = 6.0  # patches that a place must be wrong by to count as much as being absent
SHARPNESS = 10.0  # of the likeness of visual tokens and words
OFFSET = 2  # the two last channels: where the middle of the thing is, in patches


class DenseHeads(nn.Module):
    """Linear readers of patches, and of the class token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Linear(width, sum(HEADS.values()) + OFFSET)
        self.whole = nn.Linear(width, len(PAIRS))
        self.words = nn.Linear(width, len(COLORS) + len(SHAPES))
        self.tally = nn.Linear(width, MOST + 1)
        self.named = nn.Linear(width, 4)  # whether what is named is there, where, and how large
        self.places = nn.Linear(width, 3)  # where, and how large
        self.leads = nn.Linear(width, HEADS["target"])
        self.beside = nn.Linear(width, len(COLORS) + len(SHAPES))  # of the nearest object
        self.middle = nn.Linear(width, 1)  # whether a patch is the middle one of its thing


@dataclass(frozen=True)
class PatchLabels:
    """Labels of a batch: by head ``[B, P]``; offsets ``[B, P, 2]``; pairs present ``[B, 64]``."""

    heads: dict[str, Tensor]
    offsets: Tensor
    pairs: Tensor


def label_patches(scenes: list[WorldScene], *, patch: int) -> PatchLabels:
    """Say what every patch shows."""
    rows = [_one(scene, patch) for scene in scenes]
    return PatchLabels(
        heads={name: torch.from_numpy(np.stack([row[0][name] for row in rows])) for name in HEADS},
        offsets=torch.from_numpy(np.stack([row[1] for row in rows])).float(),
        pairs=torch.tensor(
            [[pair in {(t.color, t.name) for t in s.of("shape")} for pair in PAIRS] for s in scenes]
        ).float(),
    )


def dense_loss(heads: DenseHeads, patches: Tensor, whole: Tensor, labels: PatchLabels) -> Tensor:
    """Sum the heads' losses: patches ``[B, P, D]``, class tokens ``[B, D]``."""
    *logits, offsets = heads.patches(patches).split([*HEADS.values(), OFFSET], dim=-1)
    total = F.binary_cross_entropy_with_logits(heads.whole(whole), labels.pairs)
    for (name, classes), scores in zip(HEADS.items(), logits, strict=True):
        label = labels.heads[name]
        if (label >= 0).any():
            total = total + WEIGHTS.get(name, 1.0) * F.cross_entropy(
                scores.reshape(-1, classes), label.reshape(-1), ignore_index=-1
            )
    shown = labels.heads["content"] > 0
    return total + 0.1 * (offsets - labels.offsets)[shown].pow(2).mean()


def naming_loss(features: Tensor, embeddings: Tensor, labels: PatchLabels) -> Tensor:
    """Bring visual tokens close to the words for what they show: colour, and name or height.

    A decoder that starts with tokens and words in one space finds what a question names at once.

    Args:
        features: visual tokens, ``[B, P, D]``.
        embeddings: of all words, ``[V, D]``.
        labels: what the patches show.
    """
    heads = labels.heads
    named = torch.where(heads["value"] >= 0, heads["value"] + DIGITS, heads["content"])
    total = features.new_zeros(())
    for label, words in ((named, CONTENTS), (heads["color"], TINTS)):
        # the last word of a label is in the vocabulary, or there is none for it
        places = torch.tensor([vocabulary().get(word.split()[-1], -1) for word in words])
        known = places[label] >= 0
        if known.any():
            rows = F.normalize(embeddings[places.clamp_min(0)], dim=-1)
            rows = rows.masked_fill((places < 0)[:, None], 0.0)
            likeness = SHARPNESS * F.normalize(features[known], dim=-1) @ rows.T
            total = total + F.cross_entropy(likeness, label[known])
    return total


def placing_loss(
    heads: DenseHeads, features: Tensor, labels: PatchLabels, *, corner: tuple[int, int]
) -> Tensor:
    """Let visual tokens say plainly where in the full grid their thing is, and how large.

    And whether they are its middle: things can only be counted if each has one token of its own.

    Args:
        heads: with a reader of places.
        features: visual tokens, ``[B, P, D]``.
        labels: how far the middle of a patch's thing is.
        corner: row and column of the pictures' first patch.
    """
    side = int(features.shape[1] ** 0.5)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    own = torch.stack([corner[1] + columns, corner[0] + rows], dim=-1).view(-1, 2) + 0.5
    found = heads.places(features)
    loss = (found[..., :2] - (own + labels.offsets) / REACH).pow(2).mean()
    sized = labels.heads["size"] >= 0
    if sized.any():
        large = labels.heads["size"][sized].float()
        loss = loss + F.binary_cross_entropy_with_logits(found[..., 2][sized], large)
    thing = labels.heads["color"] > 0
    if thing.any():
        middle = ((labels.offsets >= -0.5) & (labels.offsets < 0.5)).all(-1)[thing].float()
        told = heads.middle(features[thing]).squeeze(-1)
        loss = loss + F.binary_cross_entropy_with_logits(told, middle)
    return loss


def passing_loss(heads: DenseHeads, features: Tensor, labels: PatchLabels) -> Tensor:
    """Let visual tokens say where the arrow that they show, or that leaves their box, leads.

    Args:
        heads: with a reader of targets.
        features: visual tokens, ``[B, P, D]``.
        labels: what the patches show.
    """
    target = labels.heads["target"]
    known = target >= 0
    if not known.any():
        return features.new_zeros(())
    return F.cross_entropy(heads.leads(features[known]), target[known])


def dense_accuracy(heads: DenseHeads, patches: Tensor, labels: PatchLabels) -> dict[str, float]:
    """Share of patches that each head labels rightly, where there is something to label."""
    *logits, _ = heads.patches(patches).split([*HEADS.values(), OFFSET], dim=-1)
    found = {}
    for name, scores in zip(HEADS, logits, strict=True):
        label = labels.heads[name]
        asked = label > 0 if name in ("content", "color") else label >= 0
        if asked.any():
            found[name] = (scores.argmax(-1) == label)[asked].float().mean().item()
    content, digits = labels.heads["content"], CONTENTS.index("digit 0")
    written = (content >= digits) & (content < digits + 10)
    if written.any():
        found["digit"] = (logits[0].argmax(-1) == content)[written].float().mean().item()
    return found


def _one(scene: WorldScene, patch: int) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.float64]]:
    side = len(scene.pixels) // patch
    labels = {name: np.full((side, side), -1) for name in HEADS}
    labels["content"][:] = labels["color"][:] = 0
    offsets = np.zeros((side, side, 2))
    for stroke, (source, target) in zip(scene.strokes, scene.links, strict=True):
        seen = stroke.reshape(side, patch, side, patch).mean(axis=(1, 3)) > 0.12
        labels["content"][seen] = CONTENTS.index("arrow")
        labels["source"][seen] = LETTERS.index(source)
        labels["target"][seen] = LETTERS.index(target)
    for thing in scene.things:
        left, top, right, bottom = ((edge + patch // 2) // patch for edge in thing.box)
        here = (slice(top, max(bottom, top + 1)), slice(left, max(right, left + 1)))
        _mark(labels, here, thing, dict(scene.links))
        y, x = np.mgrid[here[0], here[1]] + 0.5
        offsets[here] = np.stack(
            [thing.center[0] / patch - x, thing.center[1] / patch - y], axis=-1
        )
    flat = {name: label.reshape(-1) for name, label in labels.items()}
    return flat, offsets.reshape(-1, OFFSET)


def _mark(
    labels: dict[str, NDArray[np.int64]],
    here: tuple[slice, slice],
    thing: Thing,
    links: dict[str, str],
) -> None:
    content = "bar" if thing.kind == "bar" else f"{thing.kind} {thing.name}"
    labels["content"][here] = CONTENTS.index(content)
    labels["color"][here] = TINTS.index(thing.color)
    labels["source"][here] = labels["target"][here] = -1
    if thing.kind == "bar":
        labels["value"][here] = int(thing.name)
    if thing.kind == "shape":
        labels["size"][here] = int(thing.size == "large")
    if thing.kind == "node" and thing.name in links:
        labels["target"][here] = LETTERS.index(links[thing.name])
