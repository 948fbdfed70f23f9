"""What batches leave out: visual tokens, whole pictures; losses of arrows and nearest objects."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from eos.evaluation.answering import BLANK_COLOR
from eos.miniature.language import vocabulary
from eos.miniature.model import miniature_config, new_model
from eos.miniature.questions import nearest_object
from eos.miniature.scenes import COLORS, LETTERS, SHAPES, draw_scene
from eos.miniature.training.batches import (
    BLANK_LEVEL,
    MOST_LISTED,
    make_batch,
    select_visual_tokens,
)
from eos.miniature.training.forward import run_decoder, vision_features
from eos.miniature.training.patch_losses import AuxiliaryHeads, arrow_target_loss, label_patches
from eos.miniature.training.word_losses import nearest_object_loss


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def model():
    return new_model(miniature_config(width=32, layers=2, vision_layers=2), seed=0).eval()


def test_a_blank_picture_keeps_its_questions_and_shows_nothing():
    kinds = ["objects", "diagram", "chart"]
    plain = make_batch(kinds, rng(), size=96)
    blank = make_batch(kinds, rng(), size=96, blank_rate=1.0)
    assert torch.equal(plain.ids, blank.ids)
    assert (BLANK_LEVEL,) * 3 == BLANK_COLOR  # what blind answers are measured on
    assert len({scene.pixels.tobytes() for scene in blank.scenes}) == 1
    labels = label_patches(blank.scenes).heads
    assert not labels["content"].any()
    assert all((labels[name] == -1).all() for name in ("target", "source", "value", "size"))
    assert label_patches(plain.scenes).heads["content"].any()


@torch.no_grad()
def test_selected_visual_tokens_are_the_batch_without_the_others(model):
    batch = make_batch(["objects", "diagram"], rng(), size=48)
    patches, _ = vision_features(model, batch.pixels, corner=(0, 0))
    features = model.model.multi_modal_projector(patches)
    everything = torch.arange(144).expand(2, -1)
    same, _ = run_decoder(model, select_visual_tokens(batch, everything), features)
    assert torch.equal(same, run_decoder(model, batch, features)[0])
    kept = torch.stack([torch.arange(0, 144, 2), torch.arange(1, 144, 2)])
    fewer = select_visual_tokens(batch, kept)
    assert fewer.ids.shape[1] == batch.ids.shape[1] - 72
    assert torch.equal(fewer.positions[:, 2:74], kept + 2)  # they stay where they were
    shown = features.gather(1, kept[..., None].expand(-1, -1, 32))
    logits, _ = run_decoder(model, fewer, shown)
    # the same as hiding them from all tokens
    hidden = torch.ones(2, 144, dtype=torch.bool).scatter(1, kept, False)
    mask = batch.mask()
    mask[:, 0, :, 2:146] = mask[:, 0, :, 2:146].masked_fill(hidden[:, None], -1e9)
    embedded = model.get_input_embeddings()(batch.ids)
    embedded = torch.cat([embedded[:, :2], features, embedded[:, 146:]], dim=1)
    out = model.model.language_model(
        inputs_embeds=embedded, attention_mask=mask, position_ids=batch.positions, use_cache=False
    )
    expected = model.lm_head(out.last_hidden_state)[:, 146:]
    torch.testing.assert_close(logits[:, 74:], expected, atol=2e-5, rtol=1e-4)
    assert (same[:, 146:] - expected).abs().max() > 1e-4  # negative control


def test_boxes_are_labelled_with_where_their_arrows_lead():
    diagram = draw_scene("diagram", rng(1))
    target = label_patches([diagram]).heads["target"][0].view(24, 24)
    nodes = {thing.name: thing for thing in diagram.of("node")}
    for source, end in diagram.links:
        x, y = (int(part // 4) for part in nodes[source].center)
        assert LETTERS[int(target[y, x])] == end


@torch.no_grad()
def test_the_arrow_loss_falls_for_right_heads_and_is_nothing_without_arrows():
    labels = label_patches([draw_scene("diagram", rng(2))])
    target = labels.heads["target"]
    heads, features = AuxiliaryHeads(6), 20.0 * one_hot(target.clamp_min(0), 6).float()
    heads.arrow_target.weight.copy_(torch.eye(6))
    heads.arrow_target.bias.zero_()
    assert arrow_target_loss(heads, features, labels) < 1e-3
    assert arrow_target_loss(heads, features.roll(1, dims=-1), labels) > 1.0
    chart = label_patches([draw_scene("chart", rng(2))])
    assert arrow_target_loss(heads, features, chart) == 0


@torch.no_grad()
def test_names_predict_their_nearest_object():
    batch = make_batch(["objects"] * 4, rng(4), size=96, shares=(0.4,))
    words = {index: word for word, index in vocabulary().items()}
    heads, states = AuxiliaryHeads(16), torch.zeros(*batch.ids.shape, 16)
    heads.nearest_object.weight.copy_(torch.eye(16))
    heads.nearest_object.bias.zero_()
    found = 0
    for row, scene in enumerate(batch.scenes):
        text = [words[index] for index in batch.ids[row].tolist()]
        for column, word in enumerate(text):
            color = text[column - 1] if text[column - 1] in COLORS else None
            meant = [t for t in scene.of("shape") if t.name == word and color in (None, t.color)]
            other = nearest_object(scene, meant[0]) if len(meant) == 1 else None
            if other is not None:
                found += 1
                states[row, column, list(COLORS).index(other.color)] = 20.0
                states[row, column, 8 + SHAPES.index(other.name)] = 20.0
    assert found > 5
    assert nearest_object_loss(heads, states, batch.ids, batch.scenes) < 1e-3
    swapped = nearest_object_loss(heads, states.flip(0), batch.ids, batch.scenes)
    assert swapped > 1.0
    chart = make_batch(["chart"], rng(4), size=96)
    assert nearest_object_loss(heads, states[:1], chart.ids, chart.scenes) == 0


@pytest.mark.parametrize(("share", "listed"), [(0.4, True), (1.0, False)])
def test_objects_are_named_one_by_one_only_if_they_are_few(share, listed):
    batch = make_batch(["objects"], rng(), size=96, shares=(share,))
    assert (len(batch.scenes[0].of("shape")) <= MOST_LISTED) == listed
    assert ("everything" in batch.families[0]) == listed
