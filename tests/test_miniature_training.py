"""How the miniature is taught: lessons are the prompts of test time, and training can be cut."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlavaForConditionalGeneration

from eos.miniature.language import make_processor, vocabulary
from eos.miniature.model import PATCH, SIZE, miniature_config, new_model
from eos.miniature.scenes import COLORS, PLURALS, SCENE_KINDS, SHAPES, draw_scene
from eos.miniature.training.checkpoint import export
from eos.miniature.training.course import COURSE, Phase, phase_at, rate_at, total_steps
from eos.miniature.training.lessons import make_lesson, pixel_values
from eos.miniature.training.optimizer import Muon, orthogonalised
from eos.miniature.training.sight import Gaze, look, project, read
from eos.miniature.training.student import Student, study
from eos.miniature.training.supervision import (
    CONTENTS,
    REACH,
    TINTS,
    DenseHeads,
    dense_loss,
    label_patches,
    naming_loss,
    placing_loss,
)
from eos.miniature.training.train import train
from eos.miniature.training.wording import (
    grounding_loss,
    looking_loss,
    pointing_loss,
    relevant_patches,
)
from eos.miniature.world import Example, example

TINY = {"width": 32, "layers": 2, "vision_layers": 2}
SHORT = (Phase("tower", 48, 3, 4), Phase("answers", 48, 3, 4))


@pytest.fixture(scope="module")
def model():
    return new_model(miniature_config(**TINY), seed=0).eval()


def encoded(item: Example):
    return make_processor(size=SIZE, patch=PATCH).apply_chat_template(
        item.messages(answered=True), tokenize=True, return_dict=True, return_tensors="pt"
    )


def lesson_of(monkeypatch, item, *, conversation=False):
    """Make a lesson that holds exactly one example."""
    scene = draw_scene("objects", np.random.default_rng(0))
    scene = type(scene)("objects", np.asarray(item.image), ())
    monkeypatch.setattr("eos.miniature.training.lessons.draw_scene", lambda *a, **k: scene)
    monkeypatch.setattr(
        "eos.miniature.training.lessons._ask", lambda scene, rng: [(item.family, item.question)]
    )
    rng = np.random.default_rng(0)
    return make_lesson(["objects"], rng, size=SIZE, patch=PATCH, conversation=conversation)


@pytest.mark.parametrize("family", ["presence", "listing", "followup"])
def test_a_lesson_is_what_the_processor_makes_of_the_same_example(monkeypatch, family):
    item = example("validation", family, 0)
    lesson, inputs = lesson_of(monkeypatch, item), encoded(item)
    assert torch.equal(lesson.ids, inputs["input_ids"])
    assert torch.equal(lesson.positions, torch.arange(lesson.ids.shape[1])[None])
    torch.testing.assert_close(lesson.pixels, inputs["pixel_values"])


@pytest.mark.parametrize("family", ["presence", "followup"])
@torch.no_grad()
def test_the_forward_pass_of_training_is_that_of_the_model(monkeypatch, model, family):
    item = example("validation", family, 1)
    lesson = lesson_of(monkeypatch, item)
    patches, _ = look(model, lesson.pixels, corner=(0, 0))
    ours, _ = read(model, lesson, project(model, patches))
    theirs = model(**encoded(item)).logits
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)
    blank, _ = look(model, torch.zeros_like(lesson.pixels), corner=(0, 0))
    assert (read(model, lesson, project(model, blank))[0] - theirs).abs().max() > 1e-4  # control


@torch.no_grad()
def test_questions_of_a_lesson_do_not_see_each_other(model):
    rng = np.random.default_rng(3)
    lesson = make_lesson(["objects"], rng, size=48, patch=PATCH)
    patches, _ = look(model, lesson.pixels, corner=(0, 0))
    features = project(model, patches)
    logits, _ = read(model, lesson, features)
    changed = lesson.ids.clone()
    changed[lesson.blocks == 1] = 7
    other, _ = read(model, type(lesson)(**{**vars(lesson), "ids": changed}), features)
    assert torch.equal(logits[lesson.blocks != 1], other[lesson.blocks != 1])
    assert not torch.equal(logits[lesson.blocks == 1], other[lesson.blocks == 1])


def test_answers_alone_are_taught():
    lesson = make_lesson(["chart"], np.random.default_rng(0), size=48, patch=PATCH)
    tokenizer = make_processor(size=SIZE, patch=PATCH).tokenizer
    taught = lesson.ids[0, 1:][lesson.weights[0, :-1] > 0]
    words = set(tokenizer.convert_ids_to_tokens(taught))
    assert "</s>" in words
    assert not words & {"what", "is", "ASSISTANT:", "USER:", "?", "<image>"}


@torch.no_grad()
def test_a_small_image_takes_a_window_of_the_positions(model):
    pixels = pixel_values([draw_scene("objects", np.random.default_rng(0), size=48)])
    here, _ = look(model, pixels, corner=(0, 0))
    there, _ = look(model, pixels, corner=(12, 12))
    assert here.shape == (1, 144, 32)
    assert not torch.allclose(here, there)


@pytest.mark.parametrize("kind", SCENE_KINDS)
def test_patches_are_labelled_where_things_are(kind):
    scene = draw_scene(kind, np.random.default_rng(1))
    labels = label_patches([scene], patch=PATCH)
    content = labels.heads["content"].view(24, 24)
    for thing in scene.things:
        x, y = thing.center
        name = CONTENTS[int(content[min(23, int(y // 4)), min(23, int(x // 4))])]
        assert name == ("bar" if thing.kind == "bar" else f"{thing.kind} {thing.name}")
    shown = (content > 0).float().mean()
    assert 0.1 < shown < 0.6


def test_the_dense_loss_falls_for_a_right_reader():
    scenes = [draw_scene("objects", np.random.default_rng(1), size=48)]
    labels = label_patches(scenes, patch=PATCH)
    heads, patches, whole = DenseHeads(8), torch.zeros(1, 144, 8), torch.zeros(1, 8)
    before = dense_loss(heads, patches, whole, labels)
    optimizer = torch.optim.Adam(heads.parameters(), lr=0.05)
    for _ in range(30):
        loss = dense_loss(heads, patches, whole, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < before


@pytest.mark.parametrize("kind", SCENE_KINDS)
def test_tokens_are_drawn_to_the_words_for_what_they_show(kind):
    scene = draw_scene(kind, np.random.default_rng(1), size=48)
    labels = label_patches([scene], patch=PATCH)
    words = torch.eye(len(vocabulary()))
    said = torch.zeros(1, 144, len(words))
    for seen in scene.things:
        left, top, right, bottom = ((edge + 2) // 4 for edge in seen.box)
        for place in [y * 12 + x for y in range(top, bottom) for x in range(left, right)]:
            said[0, place] = words[vocabulary()[seen.color]] + words[vocabulary()[seen.name]]
    right_words = naming_loss(said, words, labels)
    wrong = said.roll(1, dims=-1)
    assert right_words < naming_loss(wrong, words, labels) - 1


def test_words_are_told_what_they_go_with():
    lesson = make_lesson(["objects"], np.random.default_rng(2), size=48, patch=PATCH)
    traits = [*COLORS, *SHAPES]
    heads = DenseHeads(len(vocabulary()))
    shown = lesson.scenes[0].of("shape")
    with torch.no_grad():  # a reader that knows the picture by heart, word for word
        heads.words.weight.fill_(-9.0)
        heads.words.bias.zero_()
        heads.tally.weight.zero_()
        heads.tally.bias.copy_(torch.tensor([9.0] + 6 * [0.0]))
        for trait in traits:
            number = sum(trait in (thing.color, thing.name) for thing in shown)
            for form in {trait, PLURALS.get(trait, trait)}:
                heads.tally.weight[number, vocabulary()[form]] = 18.0
        for thing in shown:
            for word, other in ((thing.color, thing.name), (thing.name, thing.color)):
                for form in {word, PLURALS.get(word, word)}:
                    heads.words.weight[traits.index(other), vocabulary()[form]] = 9.0
    states = torch.eye(len(vocabulary()))[lesson.ids]
    assert grounding_loss(heads, states, lesson.ids, lesson.scenes) < 0.01
    elsewhere = [draw_scene("objects", np.random.default_rng(9), size=48)]
    assert grounding_loss(heads, states, lesson.ids, elsewhere) > 1.0  # control


def test_tokens_say_where_and_how_large_their_thing_is_and_whether_they_are_its_middle():
    scene = draw_scene("objects", np.random.default_rng(4), size=48)
    labels, corner = label_patches([scene], patch=PATCH), (3, 7)
    heads = DenseHeads(4)
    with torch.no_grad():
        heads.places.weight.copy_(torch.eye(4)[:3])
        heads.middle.weight.copy_(torch.eye(4)[3:])
        heads.places.bias.zero_()
        heads.middle.bias.zero_()
    own = torch.tensor([(x + 0.5, y + 0.5) for y in range(12) for x in range(12)])
    where = (own + labels.offsets[0] + torch.tensor([7.0, 3.0])) / REACH
    large = 18.0 * labels.heads["size"][0].clamp_min(0)[:, None] - 9.0
    middle = torch.full((12, 12), -9.0)
    for thing in scene.of("shape"):  # each has exactly one
        x, y = (int(part // PATCH) for part in thing.center)
        middle[y, x] = 9.0
    told = torch.cat([where, large, middle.view(-1, 1)], dim=1)[None]
    assert placing_loss(heads, told, labels, corner=corner) < 0.01
    assert placing_loss(heads, told, labels, corner=(9, 7)) > 0.4  # control: elsewhere
    smaller = told * torch.tensor([1.0, 1.0, -1.0, 1.0])
    assert placing_loss(heads, smaller, labels, corner=corner) > 5  # control: the other size
    border = told * torch.tensor([1.0, 1.0, 1.0, -1.0])
    assert placing_loss(heads, border, labels, corner=corner) > 5  # control: all but the middle


def test_names_are_to_know_whether_and_where_their_object_is():
    scene = draw_scene("objects", np.random.default_rng(4), size=48)
    things = scene.of("shape")
    alone = [t for t in things if [(u.color, u.name) for u in things].count((t.color, t.name)) == 1]
    words = vocabulary()
    ids = torch.tensor([[words["the"], words[alone[0].color], words[alone[0].name]]])
    heads, corner = DenseHeads(4), (2, 5)
    x, y = (center / PATCH for center in alone[0].center)
    where = [(corner[1] + x) / REACH, (corner[0] + y) / REACH]
    states = torch.zeros(1, 3, 4)
    states[0, 2] = torch.tensor([9.0, *where, 9.0 if alone[0].size == "large" else -9.0])
    with torch.no_grad():
        heads.named.weight.copy_(torch.eye(4))
        heads.named.bias.zero_()

    def loss(corner, ids=ids):
        return pointing_loss(heads, states, ids, [scene], corner=corner, patch=PATCH)

    assert loss(corner) < 0.01
    assert loss((8, 5)) > 0.4  # control: elsewhere
    absent = next(c for c in COLORS if all((t.color, t.name) != (c, alone[0].name) for t in things))
    ids[0, 1] = words[absent]
    assert loss(corner, ids) > 5  # control: not there


def test_orthogonalised_brings_singular_values_to_one():
    matrices = torch.randn(3, 24, 40, generator=torch.Generator().manual_seed(0))
    for change in (matrices, matrices.mT):
        values = torch.linalg.svdvals(orthogonalised(change))
        assert values.min() > 0.5
        assert values.max() < 1.3
    assert torch.linalg.svdvals(matrices).max() > 5  # control


def test_muon_descends():
    weight = torch.nn.Parameter(torch.randn(4, 6, generator=torch.Generator().manual_seed(0)))
    optimizer = Muon([weight], lr=0.05)
    start = weight.square().sum().item()
    for _ in range(40):
        optimizer.zero_grad()
        weight.square().sum().backward()
        optimizer.step()
    assert weight.square().sum().item() < 0.5 * start


def test_training_cut_and_resumed_ends_with_the_same_weights(tmp_path, monkeypatch):
    config = miniature_config(**TINY)
    whole = train(tmp_path / "whole", config, course=SHORT, save_every=2)
    monkeypatch.setattr("eos.miniature.training.train.study", interrupted(at=4))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", config, course=SHORT, save_every=2)
    monkeypatch.undo()
    resumed = train(tmp_path / "cut", config, course=SHORT, save_every=2)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    other = train(tmp_path / "other", config, course=SHORT, seed=1)
    assert not torch.equal(next(other.parameters()), next(whole.parameters()))  # control
    lines = (tmp_path / "whole" / "training.jsonl").read_text().splitlines()
    assert "presence" in json.loads(lines[-1])["validation"]
    assert (tmp_path / "whole" / "weights" / "model.safetensors").exists()


def interrupted(*, at):
    """A step that is interrupted the given time it is asked for."""
    left = iter(range(at - 1, -1, -1))

    def step(student, phase, rng):
        if not next(left):
            raise KeyboardInterrupt
        return study(student, phase, rng)

    return step


def test_exported_weights_are_read_by_the_public_loader(tmp_path):
    import eos

    student = Student(miniature_config(**TINY), seed=0)
    export(student, tmp_path)
    backbone = eos.load_backbone(tmp_path)
    assert backbone.model.dtype == torch.float32
    assert LlavaForConditionalGeneration.from_pretrained(tmp_path).dtype == torch.float32
    stored = load_file(tmp_path / "model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.float16}
    for name, value in student.model.state_dict().items():
        torch.testing.assert_close(backbone.model.state_dict()[name], value, atol=2e-3, rtol=1e-3)


def test_the_course_rises_in_each_phase_and_falls_at_the_end():
    total = total_steps(COURSE)
    rates = [rate_at(COURSE, step) for step in range(total)]
    assert max(rates) == max(phase.rate for phase in COURSE)
    assert rates[-1] < 0.01
    assert rates[COURSE[0].steps] < 0.1  # the second phase begins gently
    assert phase_at(COURSE, total - 1) == (COURSE[-1], COURSE[-1].steps - 1)
    with pytest.raises(IndexError):
        phase_at(COURSE, total)


@pytest.mark.parametrize("conversation", [False, True])
def test_attending_in_parts_is_attending_with_the_whole_mask(model, conversation):
    rng = np.random.default_rng(3)
    lesson = make_lesson(["objects", "chart"], rng, size=48, patch=PATCH, conversation=conversation)
    features = torch.randn(2, 144, TINY["width"])
    logits, _ = read(model, lesson, features)
    words = model.get_input_embeddings()(lesson.ids)
    given = torch.cat([words[:, :2], features, words[:, 146:]], dim=1)

    def whole(mask):
        out = model.model.language_model(
            inputs_embeds=given, attention_mask=mask, position_ids=lesson.positions
        )
        return model.lm_head(out.last_hidden_state)

    asked = lesson.weights > 0
    assert torch.allclose(logits[asked], whole(lesson.mask())[asked], atol=1e-5)
    everything = torch.zeros_like(lesson.mask())  # a mask that hides nothing is another one
    assert not torch.allclose(logits[asked], whole(everything)[asked], atol=1e-5)


def test_words_are_to_look_at_what_they_name(model):
    scene = draw_scene("objects", np.random.default_rng(4), size=48)
    labels, words = label_patches([scene], patch=PATCH), vocabulary()
    thing = scene.of("shape")[0]
    ids = torch.tensor([[words[thing.color], words[PLURALS[thing.name]], words["what"]]])
    color, shape, other = relevant_patches(ids, labels)[0]
    assert torch.equal(color, labels.heads["color"][0] == TINTS.index(thing.color))
    assert torch.equal(shape, labels.heads["content"][0] == CONTENTS.index(f"shape {thing.name}"))
    assert torch.equal(other, labels.heads["content"][0] > 0)
    absent = next(c for c in COLORS if all(t.color != c for t in scene.of("shape")))
    elsewhere = relevant_patches(torch.tensor([[words[absent]]]), labels)[0, 0]
    assert torch.equal(elsewhere, other)  # nothing to look at but what there is


def test_a_gaze_is_the_attention_that_the_image_gets(model):
    lesson = make_lesson(["objects"], np.random.default_rng(3), size=48, patch=PATCH)
    features = torch.randn(1, 144, TINY["width"], generator=torch.Generator().manual_seed(0))
    words = lesson.ids[:, 146:]
    relevant = torch.zeros(1, words.shape[1], 144, dtype=torch.bool)
    relevant[..., :36] = True
    gaze = Gaze(relevant, layers=(1,))
    read(model, lesson, features, gaze=gaze)
    given = model.get_input_embeddings()(lesson.ids)
    given = torch.cat([given[:, :2], features, given[:, 146:]], dim=1)
    eager = deepcopy(model)
    eager.set_attn_implementation("eager")
    out = eager.model.language_model(
        inputs_embeds=given,
        attention_mask=lesson.mask(),
        position_ids=lesson.positions,
        output_attentions=True,
    )
    looks = out.attentions[1][:, :, 146:, 2:146]
    share = (looks / looks.sum(-1, keepdim=True)).mean(1)[..., :36].sum(-1)
    assert torch.allclose(gaze.shares[0], share, atol=1e-5)
    best = Gaze(gaze.relevant, gaze.layers, [torch.ones_like(share)])
    assert looking_loss(best, words) < 1e-6 < looking_loss(gaze, words)
    dark = Gaze(torch.zeros_like(gaze.relevant), gaze.layers, [torch.zeros_like(share)])
    assert looking_loss(dark, words) == 0
