"""Step: the model in training with its auxiliary heads, one training step, one validation."""

from collections import defaultdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import LlavaConfig, LlavaForConditionalGeneration

from eos.miniature.model import GRID, PATCH, initialise_for_training, new_model
from eos.miniature.scenes import Random, draw_scene
from eos.miniature.training import batches, patch_losses, word_losses
from eos.miniature.training.batches import TrainingBatch
from eos.miniature.training.forward import (
    FIRST_VISUAL,
    ImageAttention,
    run_decoder,
    vision_features,
)
from eos.miniature.training.optimizer import Muon
from eos.miniature.training.patch_losses import PatchLabels, label_patches
from eos.miniature.training.schedule import OTHER_KINDS, Phase

DENSE_WEIGHT = 0.5  # of the patches' losses, in phases with answers
LOSS_WEIGHTS = {  # of all others, by their names in the log
    "naming": 0.5,
    "placing": 0.5,
    "passing": 0.5,
    "grounding": 0.5,
    "pointing": 1.0,
    "neighbours": 0.1,
    "looking": 0.1,
    "answers": 1.0,
}
SUPERVISED_LAYERS = (1, 2, 6)  # of the decoder, by their attention
TOWER_RATE = 0.2  # the vision tower's learning rates, relative to the decoder's
KEEP_FRACS = (1.0, 1.0, 1.0, 0.5)  # of the visual tokens, for the decoder; drawn for each batch
CONTENT_BONUS = 0.7  # of tokens that show something, in the random ranks by which tokens are kept
CONVERSATION_RATE = 0.25  # share of batches that are conversations


class TrainingModel(nn.Module):
    """The model and the heads that only training needs."""

    def __init__(self, config: LlavaConfig, *, seed: int) -> None:
        super().__init__()
        self.model: LlavaForConditionalGeneration = new_model(config, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            initialise_for_training(self.model)
            self.heads = patch_losses.AuxiliaryHeads(
                self.model.model.vision_tower.config.hidden_size
            )


def make_optimizers(model: TrainingModel) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the networks, AdamW for the rest; the tower learns slower."""
    tower = {id(parameter) for parameter in model.model.model.vision_tower.parameters()}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        inner = parameter.ndim == 2 and name.startswith("model.model.") and "embed" not in name
        (matrices if inner else others).append(parameter)

    def groups(parameters: list[nn.Parameter], rate: float) -> list[dict[str, Any]]:
        slow = [parameter for parameter in parameters if id(parameter) in tower]
        fast = [parameter for parameter in parameters if id(parameter) not in tower]
        return [
            {"params": slow, "lr": TOWER_RATE * rate, "base": TOWER_RATE * rate},
            {"params": fast, "lr": rate, "base": rate},
        ]

    adam = torch.optim.AdamW(groups(others, 3e-3), betas=(0.9, 0.95), weight_decay=0.0)
    return [Muon(groups(matrices, 0.02), lr=0.02), adam]


def training_step(model: TrainingModel, phase: Phase, rng: Random) -> dict[str, float]:
    """Run forward and backward passes of a batch of objects, then of one of the other kinds.

    Returns:
        the losses, by "name batch", such as "dense objects".
    """
    half = phase.images // 2
    others = rng.permutation(phase.other_kinds).tolist()
    halves = {
        "objects": ["objects"] * half,
        "others": [others[place % len(others)] for place in range(half)],
    }
    found: dict[str, float] = {}
    for name, kinds in halves.items():
        top, left = rng.integers(0, GRID - phase.size // PATCH + 1, 2).tolist()
        batch = None
        if phase.objective == "tower":
            scenes = [draw_scene(kind, rng, size=phase.size) for kind in kinds]
            pixels = batches.pixel_values(scenes)
        else:
            batch = batches.make_batch(
                kinds,
                rng,
                size=phase.size,
                conversation=bool(rng.random() < CONVERSATION_RATE),
                shares=phase.shares,
                blank_rate=batches.BLANK_RATE,
            )
            scenes, pixels = batch.scenes, batch.pixels
        patches, pooled = vision_features(model.model, pixels, corner=(top, left))
        labels = label_patches(scenes)
        loss = patch_losses.dense_loss(model.heads, patches, pooled, labels)
        found[f"dense {name}"] = loss.item()
        if batch is not None:
            kept = _draw_kept(labels, rng)
            losses = _answer_losses(model, batch, patches, labels, kept=kept, corner=(top, left))
            found |= {f"{part} {name}": value.item() for part, value in losses.items()}
            loss = DENSE_WEIGHT * loss + sum(LOSS_WEIGHTS[k] * v for k, v in losses.items())
        (loss / len(halves)).backward()
    return found


def _answer_losses(
    model: TrainingModel,
    batch: TrainingBatch,
    patches: Tensor,
    labels: PatchLabels,
    *,
    kept: Tensor,
    corner: tuple[int, int],
) -> dict[str, Tensor]:
    """The answers' loss and the auxiliary ones of visual tokens and words, by names in the log."""
    heads, visual = model.heads, model.model.model.multi_modal_projector(patches)
    words = batch.ids[:, FIRST_VISUAL + visual.shape[1] :]
    batch = batches.select_visual_tokens(batch, kept)
    relevant = word_losses.relevant_patches(words, labels)
    relevant = relevant.gather(2, kept[:, None].expand(-1, words.shape[1], -1))
    attention = ImageAttention(relevant, SUPERVISED_LAYERS)
    shown = visual.gather(1, kept[..., None].expand(-1, -1, visual.shape[2]))
    logits, states = run_decoder(model.model, batch, shown, attention=attention)
    ids, scenes, layers = batch.ids, batch.scenes, len(states) - 1
    middle, late = states[layers // 2], states[layers * 3 // 4]
    embedding: nn.Embedding = model.model.model.language_model.embed_tokens
    return {
        "naming": patch_losses.word_alignment_loss(visual, embedding.weight, labels),
        "placing": patch_losses.patch_location_loss(heads, visual, labels, corner=corner),
        "passing": patch_losses.arrow_target_loss(heads, visual, labels),
        "grounding": word_losses.grounding_loss(heads, middle, ids, scenes),
        "pointing": word_losses.object_location_loss(heads, middle, ids, scenes, corner=corner),
        "neighbours": word_losses.nearest_object_loss(heads, late, ids, scenes),
        "looking": word_losses.attention_loss(attention, words),
        "answers": answer_loss(logits, batch),
    }


def answer_loss(logits: Tensor, batch: TrainingBatch) -> Tensor:
    """Weighted cross-entropy of the answers' tokens."""
    answered = batch.weights[:, :-1] > 0
    each = F.cross_entropy(logits[:, :-1][answered], batch.ids[:, 1:][answered], reduction="none")
    weights = batch.weights[:, :-1][answered]
    return (each * weights).sum() / weights.sum()


def _draw_kept(labels: PatchLabels, rng: Random) -> Tensor:
    """Draw which visual tokens the decoder gets, ``[B, K]``; background is left out first.

    A decoder that always gets the background relies on it: its attention is spread over it.
    """
    content = labels.heads["content"]
    share = KEEP_FRACS[int(rng.integers(0, len(KEEP_FRACS)))]
    ranks = torch.from_numpy(rng.random(content.shape)) + CONTENT_BONUS * (content > 0)
    return ranks.topk(round(share * content.shape[1]), dim=1).indices.sort(dim=1).values


@torch.no_grad()
def validate(
    model: TrainingModel, phase: Phase, *, seed: int, images: int = 96
) -> dict[str, float]:
    """Measure on validation scenes: patches, and whole answers given their beginnings."""
    rng = np.random.default_rng([1, 0, seed])
    kinds = ["objects" if place % 2 else OTHER_KINDS[place // 2 % 4] for place in range(images)]
    hits: dict[str, list[float]] = defaultdict(list)
    for start in range(0, images, 16):
        batch = batches.make_batch(
            kinds[start : start + 16], rng, size=phase.size, split="validation", shares=phase.shares
        )
        patches, _ = vision_features(model.model, batch.pixels, corner=(0, 0))
        labels = label_patches(batch.scenes)
        for name, share in patch_losses.dense_accuracy(model.heads, patches, labels).items():
            hits[f"patch {name}"].append(share)
        if phase.objective == "answers":
            visual = model.model.model.multi_modal_projector(patches)
            for family, hit in _answer_hits(run_decoder(model.model, batch, visual)[0], batch):
                hits[family].append(hit)
    return {name: round(float(np.mean(values)), 4) for name, values in sorted(hits.items())}


def _answer_hits(logits: Tensor, batch: TrainingBatch) -> list[tuple[str, float]]:
    """For each question, its family and whether every token of its answer was predicted."""
    hit = logits[:, :-1].argmax(-1) == batch.ids[:, 1:]
    hit |= batch.weights[:, :-1] == 0
    return [
        (family, float(hit[row][batch.blocks[row, :-1] == place + 1].all()))
        for row, families in enumerate(batch.families)
        for place, family in enumerate(families)
    ]
