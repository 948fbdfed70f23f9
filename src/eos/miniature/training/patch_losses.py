"""Patch losses: labels of what each patch of an image shows, heads and losses that predict them.

From answers alone a small tower hardly learns to tell shapes and digits; with a label for each
patch it does in minutes. The heads are not part of the finished model.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from eos.miniature.language import vocabulary
from eos.miniature.model import PATCH
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
LABEL_CLASSES = {  # numbers of classes of each label; -1 is ignored
    "content": len(CONTENTS),
    "color": len(TINTS),
    "value": 10,
    "size": 2,
    "source": len(LETTERS),
    "target": len(LETTERS),
}
LABEL_WEIGHTS = {"value": 0.2, "size": 0.2, "source": 0.5}  # in the loss; one for the others
FIRST_DIGIT = CONTENTS.index("digit 0")  # the ten digits follow, also as heights of bars
MAX_COUNT = 6  # objects of a trait that are counted
LOCATION_SCALE = 6.0  # patches; locations are predicted in this unit
LOGIT_SCALE = 10.0  # of cosine similarities of visual tokens and words
OFFSET = 2  # the last two outputs: how far the middle of the thing is, in patches


class AuxiliaryHeads(nn.Module):
    """Linear heads on patches, class tokens, visual tokens and the decoder's states."""

    def __init__(self, width: int) -> None:
        super().__init__()
        traits = len(COLORS) + len(SHAPES)
        self.patch_labels = nn.Linear(width, sum(LABEL_CLASSES.values()) + OFFSET)
        self.image_pairs = nn.Linear(width, len(PAIRS))
        self.word_traits = nn.Linear(width, traits)
        self.word_count = nn.Linear(width, MAX_COUNT + 1)
        self.named_object = nn.Linear(width, 4)  # whether it is there, where, and how large
        self.patch_location = nn.Linear(width, 3)  # of its thing: where, and how large
        self.arrow_target = nn.Linear(width, LABEL_CLASSES["target"])
        self.nearest_object = nn.Linear(width, traits)
        self.patch_center = nn.Linear(width, 1)  # whether a patch is the middle one of its thing


@dataclass(frozen=True)
class PatchLabels:
    """Labels of a batch: by name ``[B, P]``; offsets ``[B, P, 2]``; pairs present ``[B, 64]``."""

    heads: dict[str, Tensor]
    offsets: Tensor
    pairs: Tensor


def label_patches(scenes: list[WorldScene]) -> PatchLabels:
    """Label every patch with what it shows."""
    labels, offsets = zip(*(_scene_labels(scene) for scene in scenes), strict=True)
    shown = [{(thing.color, thing.name) for thing in scene.of("shape")} for scene in scenes]
    return PatchLabels(
        heads={x: torch.from_numpy(np.stack([own[x] for own in labels])) for x in LABEL_CLASSES},
        offsets=torch.from_numpy(np.stack(offsets)).float(),
        pairs=torch.tensor([[pair in own for pair in PAIRS] for own in shown]).float(),
    )


def dense_loss(
    heads: AuxiliaryHeads, patches: Tensor, pooled: Tensor, labels: PatchLabels
) -> Tensor:
    """Sum the losses of all labels: patches ``[B, P, D]``, class tokens ``[B, D]``."""
    *logits, offsets = heads.patch_labels(patches).split([*LABEL_CLASSES.values(), OFFSET], dim=-1)
    total = F.binary_cross_entropy_with_logits(heads.image_pairs(pooled), labels.pairs)
    for (name, classes), scores in zip(LABEL_CLASSES.items(), logits, strict=True):
        label = labels.heads[name]
        if (label >= 0).any():
            total = total + LABEL_WEIGHTS.get(name, 1.0) * F.cross_entropy(
                scores.reshape(-1, classes), label.reshape(-1), ignore_index=-1
            )
    shown = labels.heads["content"] > 0
    return total + 0.1 * (offsets - labels.offsets)[shown].pow(2).mean()


def word_alignment_loss(visual: Tensor, embeddings: Tensor, labels: PatchLabels) -> Tensor:
    """Align visual tokens with the words for what they show: colour, and name or height.

    A decoder that starts with tokens and words in one space finds what a question names at once.

    Args:
        visual: visual tokens, ``[B, P, D]``.
        embeddings: of all words, ``[V, D]``.
        labels: what the patches show.
    """
    heads = labels.heads
    named = torch.where(heads["value"] >= 0, heads["value"] + FIRST_DIGIT, heads["content"])
    total = visual.new_zeros(())
    for label, words in ((named, CONTENTS), (heads["color"], TINTS)):
        # the last word of a label is in the vocabulary, or there is none for it
        ids = torch.tensor([vocabulary().get(word.split()[-1], -1) for word in words])
        known = ids[label] >= 0
        if known.any():
            rows = F.normalize(embeddings[ids.clamp_min(0)], dim=-1)
            rows = rows.masked_fill((ids < 0)[:, None], 0.0)
            logits = LOGIT_SCALE * F.normalize(visual[known], dim=-1) @ rows.T
            total = total + F.cross_entropy(logits, label[known])
    return total


def patch_location_loss(
    heads: AuxiliaryHeads, visual: Tensor, labels: PatchLabels, *, corner: tuple[int, int]
) -> Tensor:
    """Predict from visual tokens where in the full grid their thing is, and how large.

    And whether they are its middle: things can only be counted if each has one token of its own.

    Args:
        heads: of these predictions.
        visual: visual tokens, ``[B, P, D]``.
        labels: how far the middle of a patch's thing is.
        corner: row and column of the pictures' first patch.
    """
    side = int(visual.shape[1] ** 0.5)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    own = torch.stack([corner[1] + columns, corner[0] + rows], dim=-1).view(-1, 2) + 0.5
    found = heads.patch_location(visual)
    loss = (found[..., :2] - (own + labels.offsets) / LOCATION_SCALE).pow(2).mean()
    sized = labels.heads["size"] >= 0
    if sized.any():
        large = labels.heads["size"][sized].float()
        loss = loss + F.binary_cross_entropy_with_logits(found[..., 2][sized], large)
    thing = labels.heads["color"] > 0
    if thing.any():
        middle = ((labels.offsets >= -0.5) & (labels.offsets < 0.5)).all(-1)[thing].float()
        logits = heads.patch_center(visual[thing]).squeeze(-1)
        loss = loss + F.binary_cross_entropy_with_logits(logits, middle)
    return loss


def arrow_target_loss(heads: AuxiliaryHeads, visual: Tensor, labels: PatchLabels) -> Tensor:
    """Predict from visual tokens ``[B, P, D]`` where their arrow, or their box's arrow, leads."""
    target = labels.heads["target"]
    known = target >= 0
    if not known.any():
        return visual.new_zeros(())
    return F.cross_entropy(heads.arrow_target(visual[known]), target[known])


def dense_accuracy(heads: AuxiliaryHeads, patches: Tensor, labels: PatchLabels) -> dict[str, float]:
    """Share of patches that get each label rightly, where there is something to label."""
    *logits, _ = heads.patch_labels(patches).split([*LABEL_CLASSES.values(), OFFSET], dim=-1)
    found = {}
    for name, scores in zip(LABEL_CLASSES, logits, strict=True):
        label = labels.heads[name]
        labelled = label > 0 if name in ("content", "color") else label >= 0
        if labelled.any():
            found[name] = (scores.argmax(-1) == label)[labelled].float().mean().item()
    content = labels.heads["content"]
    digits = (content >= FIRST_DIGIT) & (content < FIRST_DIGIT + 10)
    if digits.any():
        found["digit"] = (logits[0].argmax(-1) == content)[digits].float().mean().item()
    return found


def _scene_labels(scene: WorldScene) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.float64]]:
    """Labels ``[P]`` and offsets ``[P, 2]`` of one scene; things hide the arrows below them."""
    side = len(scene.pixels) // PATCH
    labels = {name: np.full((side, side), -1) for name in LABEL_CLASSES}
    labels["content"][:] = labels["color"][:] = 0
    offsets = np.zeros((side, side, 2))
    for stroke, (source, target) in zip(scene.strokes, scene.links, strict=True):
        crossed = stroke.reshape(side, PATCH, side, PATCH).mean(axis=(1, 3)) > 0.12
        labels["content"][crossed] = CONTENTS.index("arrow")
        labels["source"][crossed] = LETTERS.index(source)
        labels["target"][crossed] = LETTERS.index(target)
    for thing in scene.things:
        left, top, right, bottom = ((edge + PATCH // 2) // PATCH for edge in thing.box)
        here = (slice(top, max(bottom, top + 1)), slice(left, max(right, left + 1)))
        _label_thing(labels, here, thing, dict(scene.links))
        y, x = np.mgrid[here[0], here[1]] + 0.5
        center = [middle / PATCH for middle in thing.center]
        offsets[here] = np.stack([center[0] - x, center[1] - y], axis=-1)
    flat = {name: label.reshape(-1) for name, label in labels.items()}
    return flat, offsets.reshape(-1, OFFSET)


def _label_thing(
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
