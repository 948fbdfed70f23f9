"""Student: the miniature while it learns, one step of a lesson, one look at what it knows."""

from collections import defaultdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import LlavaConfig, LlavaForConditionalGeneration

from eos.miniature.model import GRID, PATCH, initialise_for_training, new_model
from eos.miniature.scenes import Random, draw_scene
from eos.miniature.training.course import OTHERS, Phase
from eos.miniature.training.lessons import DARK, Lesson, make_lesson, pixel_values, thinned
from eos.miniature.training.optimizer import Muon
from eos.miniature.training.sight import START, Gaze, look, project, read
from eos.miniature.training.supervision import (
    DenseHeads,
    PatchLabels,
    dense_accuracy,
    dense_loss,
    label_patches,
    naming_loss,
    passing_loss,
    placing_loss,
)
from eos.miniature.training.wording import (
    grounding_loss,
    looking_loss,
    neighbour_loss,
    pointing_loss,
    relevant_patches,
)

DENSE = 0.5  # weight of the patches' losses, once there are answers
WEIGHTS = {  # of everything else
    "naming": 0.5,
    "placing": 0.5,
    "passing": 0.5,
    "grounding": 0.5,
    "pointing": 1.0,
    "neighbours": 0.1,
    "looking": 0.1,
    "answers": 1.0,
}
LOOKING = (1, 2, 6)  # layers of the decoder whose attention is supervised
TOWER = 0.2  # the vision tower's learning rates, relative to the decoder's
KEPT = (1.0, 1.0, 1.0, 0.5)  # shares of the visual tokens that the decoder is shown
BACKGROUND = 0.7  # how much sooner tokens that show nothing are left out
TALKS = 0.25  # share of micro-batches that are conversations


class Student(nn.Module):
    """The model and the heads that only training needs."""

    def __init__(self, config: LlavaConfig, *, seed: int) -> None:
        super().__init__()
        self.model: LlavaForConditionalGeneration = new_model(config, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            initialise_for_training(self.model)
            self.heads = DenseHeads(self.model.model.vision_tower.config.hidden_size)


def optimizers(student: Student) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the networks, AdamW for the rest; the tower learns slower."""
    tower = student.model.model.vision_tower
    seeing = {id(parameter) for parameter in tower.parameters()}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in student.named_parameters():
        inner = parameter.ndim == 2 and name.startswith("model.model.") and "embed" not in name
        (matrices if inner else others).append(parameter)

    def groups(parameters: list[nn.Parameter], rate: float) -> list[dict[str, Any]]:
        slow = [parameter for parameter in parameters if id(parameter) in seeing]
        fast = [parameter for parameter in parameters if id(parameter) not in seeing]
        return [
            {"params": slow, "lr": TOWER * rate, "base": TOWER * rate},
            {"params": fast, "lr": rate, "base": rate},
        ]

    adam = torch.optim.AdamW(groups(others, 3e-3), betas=(0.9, 0.95), weight_decay=0.0)
    return [Muon(groups(matrices, 0.02), lr=0.02), adam]


def answer_loss(logits: Tensor, lesson: Lesson) -> Tensor:
    """Cross-entropy of the answers' tokens."""
    asked = lesson.weights[:, :-1] > 0
    each = F.cross_entropy(logits[:, :-1][asked], lesson.ids[:, 1:][asked], reduction="none")
    weights = lesson.weights[:, :-1][asked]
    return (each * weights).sum() / weights.sum()


def study(student: Student, phase: Phase, rng: Random) -> dict[str, float]:
    """Run a step's forward and backward passes: a half of objects, then a half of the rest."""
    half = phase.images // 2
    others = rng.permutation(phase.others).tolist()
    halves = [["objects"] * half, [others[place % len(others)] for place in range(half)]]
    found: dict[str, float] = {}
    for name, kinds in zip(("objects", "others"), halves, strict=True):
        top, left = rng.integers(0, GRID - phase.size // PATCH + 1, 2).tolist()
        lesson = None
        if phase.lesson == "tower":
            scenes = [draw_scene(kind, rng, size=phase.size) for kind in kinds]
            pixels = pixel_values(scenes)
        else:
            talk = bool(rng.random() < TALKS)
            lesson = make_lesson(
                kinds,
                rng,
                size=phase.size,
                patch=PATCH,
                conversation=talk,
                shares=phase.shares,
                dark=DARK,
            )
            scenes, pixels = lesson.scenes, lesson.pixels
        patches, whole = look(student.model, pixels, corner=(top, left))
        labels = label_patches(scenes, patch=PATCH)
        loss = dense_loss(student.heads, patches, whole, labels)
        found[f"dense {name}"] = loss.item()
        if lesson is not None:
            kept = _kept(labels, rng)
            told = _losses(student, lesson, patches, labels, kept=kept, corner=(top, left))
            found |= {f"{part} {name}": value.item() for part, value in told.items()}
            loss = DENSE * loss + sum(WEIGHTS[part] * value for part, value in told.items())
        (loss / len(halves)).backward()
    return found


def _losses(
    student: Student,
    lesson: Lesson,
    patches: Tensor,
    labels: PatchLabels,
    *,
    kept: Tensor,
    corner: tuple[int, int],
) -> dict[str, Tensor]:
    """All losses of visual tokens, words and answers."""
    heads, features = student.heads, project(student.model, patches)
    words = lesson.ids[:, START + features.shape[1] :]
    lesson = thinned(lesson, kept)
    relevant = relevant_patches(words, labels)
    gaze = Gaze(relevant.gather(2, kept[:, None].expand(-1, words.shape[1], -1)), LOOKING)
    shown = features.gather(1, kept[..., None].expand(-1, -1, features.shape[2]))
    logits, states = read(student.model, lesson, shown, gaze=gaze)
    ids, scenes, layers = lesson.ids, lesson.scenes, len(states) - 1
    midway, late = states[layers // 2], states[layers * 3 // 4]
    return {
        "naming": naming_loss(features, student.model.get_input_embeddings().weight, labels),
        "placing": placing_loss(heads, features, labels, corner=corner),
        "passing": passing_loss(heads, features, labels),
        "grounding": grounding_loss(heads, midway, ids, scenes),
        "pointing": pointing_loss(heads, midway, ids, scenes, corner=corner, patch=PATCH),
        "neighbours": neighbour_loss(heads, late, ids, scenes),
        "looking": looking_loss(gaze, words),
        "answers": answer_loss(logits, lesson),
    }


def _kept(labels: PatchLabels, rng: Random) -> Tensor:
    """Draw which visual tokens to show, ``[B, K]``; what shows something is rarely left out.

    Else the decoder counts on the background: without it, attention is shared among fewer.
    """
    content = labels.heads["content"]
    share = KEPT[int(rng.integers(0, len(KEPT)))]
    ranks = torch.from_numpy(rng.random(content.shape)) + BACKGROUND * (content > 0)
    return ranks.topk(round(share * content.shape[1]), dim=1).indices.sort(dim=1).values


@torch.no_grad()
def examine(student: Student, phase: Phase, *, seed: int, images: int = 96) -> dict[str, float]:
    """Measure on validation scenes: patches, and whole answers given their beginnings."""
    rng = np.random.default_rng([1, 0, seed])
    kinds = ["objects" if place % 2 else OTHERS[place // 2 % 4] for place in range(images)]
    right: dict[str, list[float]] = defaultdict(list)
    for start in range(0, images, 16):
        part = kinds[start : start + 16]
        lesson = make_lesson(
            part, rng, size=phase.size, patch=PATCH, split="validation", shares=phase.shares
        )
        patches, _ = look(student.model, lesson.pixels, corner=(0, 0))
        labels = label_patches(lesson.scenes, patch=PATCH)
        for name, share in dense_accuracy(student.heads, patches, labels).items():
            right[f"patch {name}"].append(share)
        if phase.lesson == "answers":
            features = project(student.model, patches)
            for family, hit in _answers(read(student.model, lesson, features)[0], lesson):
                right[family].append(hit)
    return {name: round(float(np.mean(values)), 4) for name, values in sorted(right.items())}


def _answers(logits: Tensor, lesson: Lesson) -> list[tuple[str, float]]:
    """Say for each question whether every token of its answer was predicted."""
    hit = logits[:, :-1].argmax(-1) == lesson.ids[:, 1:]
    hit |= lesson.weights[:, :-1] == 0
    return [
        (family, float(hit[row][lesson.blocks[row, :-1] == place + 1].all()))
        for row, families in enumerate(lesson.families)
        for place, family in enumerate(families)
    ]
