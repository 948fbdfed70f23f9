"""What lessons leave out: visual tokens, whole pictures; and what things are told of each other."""

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from eos.evaluation.answering import BLANK_COLOR
from eos.miniature.language import vocabulary
from eos.miniature.model import PATCH, miniature_config, new_model
from eos.miniature.questions import nearest_object
from eos.miniature.scenes import COLORS, LETTERS, SHAPES, draw_scene
from eos.miniature.training.lessons import FEW, GREY, make_lesson, thinned
from eos.miniature.training.sight import look, project, read
from eos.miniature.training.supervision import DenseHeads, label_patches, passing_loss
from eos.miniature.training.wording import neighbour_loss


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def model():
    return new_model(miniature_config(width=32, layers=2, vision_layers=2), seed=0).eval()


def test_a_dark_picture_keeps_its_questions_and_shows_nothing():
    kinds = ["objects", "diagram", "chart"]
    lit = make_lesson(kinds, rng(), size=96, patch=PATCH)
    dark = make_lesson(kinds, rng(), size=96, patch=PATCH, dark=1.0)
    assert torch.equal(lit.ids, dark.ids)
    assert (GREY,) * 3 == BLANK_COLOR  # what blind answers are measured on
    assert len({scene.pixels.tobytes() for scene in dark.scenes}) == 1
    labels = label_patches(dark.scenes, patch=PATCH).heads
    assert not labels["content"].any()
    assert all((labels[name] == -1).all() for name in ("target", "source", "value", "size"))
    assert label_patches(lit.scenes, patch=PATCH).heads["content"].any()


@torch.no_grad()
def test_a_thinned_lesson_is_the_lesson_without_those_tokens(model):
    lesson = make_lesson(["objects", "diagram"], rng(), size=48, patch=PATCH)
    patches, _ = look(model, lesson.pixels, corner=(0, 0))
    features = project(model, patches)
    everyone = torch.arange(144).expand(2, -1)
    same, _ = read(model, thinned(lesson, everyone), features)
    assert torch.equal(same, read(model, lesson, features)[0])
    kept = torch.stack([torch.arange(0, 144, 2), torch.arange(1, 144, 2)])
    thin = thinned(lesson, kept)
    assert thin.ids.shape[1] == lesson.ids.shape[1] - 72
    assert torch.equal(thin.positions[:, 2:74], kept + 2)  # they stay where they were
    shown = features.gather(1, kept[..., None].expand(-1, -1, 32))
    logits, _ = read(model, thin, shown)
    # the same as hiding them from everyone
    hidden = torch.ones(2, 144, dtype=torch.bool).scatter(1, kept, False)
    mask = lesson.mask()
    mask[:, 0, :, 2:146] = mask[:, 0, :, 2:146].masked_fill(hidden[:, None], -1e9)
    embedded = model.get_input_embeddings()(lesson.ids)
    embedded = torch.cat([embedded[:, :2], features, embedded[:, 146:]], dim=1)
    out = model.model.language_model(
        inputs_embeds=embedded, attention_mask=mask, position_ids=lesson.positions, use_cache=False
    )
    expected = model.lm_head(out.last_hidden_state)[:, 146:]
    torch.testing.assert_close(logits[:, 74:], expected, atol=2e-5, rtol=1e-4)
    assert (same[:, 146:] - expected).abs().max() > 1e-4  # negative control


def test_boxes_know_where_their_arrows_lead():
    diagram = draw_scene("diagram", rng(1))
    target = label_patches([diagram], patch=4).heads["target"][0].view(24, 24)
    nodes = {thing.name: thing for thing in diagram.of("node")}
    for source, end in diagram.links:
        x, y = (int(part // 4) for part in nodes[source].center)
        assert LETTERS[int(target[y, x])] == end


@torch.no_grad()
def test_the_passing_loss_falls_for_a_right_reader_and_is_nothing_without_arrows():
    labels = label_patches([draw_scene("diagram", rng(2))], patch=4)
    target = labels.heads["target"]
    heads, features = DenseHeads(6), 20.0 * one_hot(target.clamp_min(0), 6).float()
    heads.leads.weight.copy_(torch.eye(6))
    heads.leads.bias.zero_()
    assert passing_loss(heads, features, labels) < 1e-3
    assert passing_loss(heads, features.roll(1, dims=-1), labels) > 1.0
    chart = label_patches([draw_scene("chart", rng(2))], patch=4)
    assert passing_loss(heads, features, chart) == 0


@torch.no_grad()
def test_names_are_told_of_their_nearest_object():
    lesson = make_lesson(["objects"] * 4, rng(4), size=96, patch=PATCH, shares=(0.4,))
    words = {index: word for word, index in vocabulary().items()}
    heads, states = DenseHeads(16), torch.zeros(*lesson.ids.shape, 16)
    heads.beside.weight.copy_(torch.eye(16))
    heads.beside.bias.zero_()
    told = 0
    for row, scene in enumerate(lesson.scenes):
        text = [words[index] for index in lesson.ids[row].tolist()]
        for column, word in enumerate(text):
            color = text[column - 1] if text[column - 1] in COLORS else None
            meant = [t for t in scene.of("shape") if t.name == word and color in (None, t.color)]
            other = nearest_object(scene, meant[0]) if len(meant) == 1 else None
            if other is not None:
                told += 1
                states[row, column, list(COLORS).index(other.color)] = 20.0
                states[row, column, 8 + SHAPES.index(other.name)] = 20.0
    assert told > 5
    assert neighbour_loss(heads, states, lesson.ids, lesson.scenes) < 1e-3
    swapped = neighbour_loss(heads, states.flip(0), lesson.ids, lesson.scenes)
    assert swapped > 1.0
    chart = make_lesson(["chart"], rng(4), size=96, patch=PATCH)
    assert neighbour_loss(heads, states[:1], chart.ids, chart.scenes) == 0


@pytest.mark.parametrize(("share", "asked"), [(0.4, True), (1.0, False)])
def test_objects_are_named_one_by_one_only_if_they_are_few(share, asked):
    lesson = make_lesson(["objects"], rng(), size=96, patch=PATCH, shares=(share,))
    assert (len(lesson.scenes[0].of("shape")) <= FEW) == asked
    assert ("everything" in lesson.families[0]) == asked
