"""How the miniature is trained: batches are the prompts of test time, training can be resumed."""

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
from eos.miniature.training.batches import make_batch, pixel_values
from eos.miniature.training.checkpoint import export
from eos.miniature.training.forward import ImageAttention, run_decoder, vision_features
from eos.miniature.training.optimizer import Muon, orthogonalised
from eos.miniature.training.patch_losses import (
    CONTENTS,
    LOCATION_SCALE,
    TINTS,
    AuxiliaryHeads,
    dense_loss,
    label_patches,
    patch_location_loss,
    word_alignment_loss,
)
from eos.miniature.training.schedule import SCHEDULE, Phase, phase_at, rate_at, total_steps
from eos.miniature.training.step import TrainingModel, training_step
from eos.miniature.training.train import train
from eos.miniature.training.word_losses import (
    attention_loss,
    grounding_loss,
    object_location_loss,
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


def batch_of(monkeypatch, item, *, conversation=False):
    """Make a batch that holds exactly one example."""
    scene = draw_scene("objects", np.random.default_rng(0))
    scene = type(scene)("objects", np.asarray(item.image), ())
    monkeypatch.setattr("eos.miniature.training.batches.draw_scene", lambda *a, **k: scene)
    monkeypatch.setattr(
        "eos.miniature.training.batches._draw_questions",
        lambda scene, rng: [(item.family, item.question)],
    )
    rng = np.random.default_rng(0)
    return make_batch(["objects"], rng, size=SIZE, conversation=conversation)


@pytest.mark.parametrize("family", ["presence", "listing", "followup"])
def test_a_batch_is_what_the_processor_makes_of_the_same_example(monkeypatch, family):
    item = example("validation", family, 0)
    batch, inputs = batch_of(monkeypatch, item), encoded(item)
    assert torch.equal(batch.ids, inputs["input_ids"])
    assert torch.equal(batch.positions, torch.arange(batch.ids.shape[1])[None])
    torch.testing.assert_close(batch.pixels, inputs["pixel_values"])


@pytest.mark.parametrize("family", ["presence", "followup"])
@torch.no_grad()
def test_the_forward_pass_of_training_is_that_of_the_model(monkeypatch, model, family):
    item = example("validation", family, 1)
    batch = batch_of(monkeypatch, item)
    patches, _ = vision_features(model, batch.pixels, corner=(0, 0))
    ours, _ = run_decoder(model, batch, model.model.multi_modal_projector(patches))
    theirs = model(**encoded(item)).logits
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)
    blank, _ = vision_features(model, torch.zeros_like(batch.pixels), corner=(0, 0))
    other, _ = run_decoder(model, batch, model.model.multi_modal_projector(blank))
    assert (other - theirs).abs().max() > 1e-4  # control


@torch.no_grad()
def test_questions_of_a_batch_do_not_see_each_other(model):
    rng = np.random.default_rng(3)
    batch = make_batch(["objects"], rng, size=48)
    patches, _ = vision_features(model, batch.pixels, corner=(0, 0))
    features = model.model.multi_modal_projector(patches)
    logits, _ = run_decoder(model, batch, features)
    changed = batch.ids.clone()
    changed[batch.blocks == 1] = 7
    other, _ = run_decoder(model, type(batch)(**{**vars(batch), "ids": changed}), features)
    assert torch.equal(logits[batch.blocks != 1], other[batch.blocks != 1])
    assert not torch.equal(logits[batch.blocks == 1], other[batch.blocks == 1])


def test_only_answers_have_a_loss():
    batch = make_batch(["chart"], np.random.default_rng(0), size=48)
    tokenizer = make_processor(size=SIZE, patch=PATCH).tokenizer
    trained = batch.ids[0, 1:][batch.weights[0, :-1] > 0]
    words = set(tokenizer.convert_ids_to_tokens(trained))
    assert "</s>" in words
    assert not words & {"what", "is", "ASSISTANT:", "USER:", "?", "<image>"}


@torch.no_grad()
def test_a_small_image_takes_a_window_of_the_positions(model):
    pixels = pixel_values([draw_scene("objects", np.random.default_rng(0), size=48)])
    here, _ = vision_features(model, pixels, corner=(0, 0))
    there, _ = vision_features(model, pixels, corner=(12, 12))
    assert here.shape == (1, 144, 32)
    assert not torch.allclose(here, there)


@pytest.mark.parametrize("kind", SCENE_KINDS)
def test_patches_are_labelled_where_things_are(kind):
    scene = draw_scene(kind, np.random.default_rng(1))
    labels = label_patches([scene])
    content = labels.heads["content"].view(24, 24)
    for thing in scene.things:
        x, y = thing.center
        name = CONTENTS[int(content[min(23, int(y // 4)), min(23, int(x // 4))])]
        assert name == ("bar" if thing.kind == "bar" else f"{thing.kind} {thing.name}")
    shown = (content > 0).float().mean()
    assert 0.1 < shown < 0.6


def test_the_dense_loss_falls_for_trained_heads():
    scenes = [draw_scene("objects", np.random.default_rng(1), size=48)]
    labels = label_patches(scenes)
    heads, patches, pooled = AuxiliaryHeads(8), torch.zeros(1, 144, 8), torch.zeros(1, 8)
    before = dense_loss(heads, patches, pooled, labels)
    optimizer = torch.optim.Adam(heads.parameters(), lr=0.05)
    for _ in range(30):
        loss = dense_loss(heads, patches, pooled, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < before


@pytest.mark.parametrize("kind", SCENE_KINDS)
def test_tokens_are_aligned_with_the_words_for_what_they_show(kind):
    scene = draw_scene(kind, np.random.default_rng(1), size=48)
    labels = label_patches([scene])
    words = torch.eye(len(vocabulary()))
    said = torch.zeros(1, 144, len(words))
    for seen in scene.things:
        left, top, right, bottom = ((edge + 2) // 4 for edge in seen.box)
        for place in [y * 12 + x for y in range(top, bottom) for x in range(left, right)]:
            said[0, place] = words[vocabulary()[seen.color]] + words[vocabulary()[seen.name]]
    right_words = word_alignment_loss(said, words, labels)
    wrong = said.roll(1, dims=-1)
    assert right_words < word_alignment_loss(wrong, words, labels) - 1


def test_words_predict_what_they_go_with():
    batch = make_batch(["objects"], np.random.default_rng(2), size=48)
    traits = [*COLORS, *SHAPES]
    heads = AuxiliaryHeads(len(vocabulary()))
    shown = batch.scenes[0].of("shape")
    with torch.no_grad():  # heads with the right answer for every word
        heads.word_traits.weight.fill_(-9.0)
        heads.word_traits.bias.zero_()
        heads.word_count.weight.zero_()
        heads.word_count.bias.copy_(torch.tensor([9.0] + 6 * [0.0]))
        for trait in traits:
            number = sum(trait in (thing.color, thing.name) for thing in shown)
            for form in {trait, PLURALS.get(trait, trait)}:
                heads.word_count.weight[number, vocabulary()[form]] = 18.0
        for thing in shown:
            for word, other in ((thing.color, thing.name), (thing.name, thing.color)):
                for form in {word, PLURALS.get(word, word)}:
                    heads.word_traits.weight[traits.index(other), vocabulary()[form]] = 9.0
    states = torch.eye(len(vocabulary()))[batch.ids]
    assert grounding_loss(heads, states, batch.ids, batch.scenes) < 0.01
    elsewhere = [draw_scene("objects", np.random.default_rng(9), size=48)]
    assert grounding_loss(heads, states, batch.ids, elsewhere) > 1.0  # control


def test_tokens_predict_where_and_how_large_their_thing_is_and_whether_they_are_its_middle():
    scene = draw_scene("objects", np.random.default_rng(4), size=48)
    labels, corner = label_patches([scene]), (3, 7)
    heads = AuxiliaryHeads(4)
    with torch.no_grad():
        heads.patch_location.weight.copy_(torch.eye(4)[:3])
        heads.patch_center.weight.copy_(torch.eye(4)[3:])
        heads.patch_location.bias.zero_()
        heads.patch_center.bias.zero_()
    own = torch.tensor([(x + 0.5, y + 0.5) for y in range(12) for x in range(12)])
    where = (own + labels.offsets[0] + torch.tensor([7.0, 3.0])) / LOCATION_SCALE
    large = 18.0 * labels.heads["size"][0].clamp_min(0)[:, None] - 9.0
    middle = torch.full((12, 12), -9.0)
    for thing in scene.of("shape"):  # each has exactly one
        x, y = (int(part // PATCH) for part in thing.center)
        middle[y, x] = 9.0
    tokens = torch.cat([where, large, middle.view(-1, 1)], dim=1)[None]
    assert patch_location_loss(heads, tokens, labels, corner=corner) < 0.01
    assert patch_location_loss(heads, tokens, labels, corner=(9, 7)) > 0.4  # control: elsewhere
    smaller = tokens * torch.tensor([1.0, 1.0, -1.0, 1.0])
    assert patch_location_loss(heads, smaller, labels, corner=corner) > 5  # control: the other size
    border = tokens * torch.tensor([1.0, 1.0, 1.0, -1.0])
    assert patch_location_loss(heads, border, labels, corner=corner) > 5  # control: not the middle


def test_names_predict_whether_and_where_their_object_is():
    scene = draw_scene("objects", np.random.default_rng(4), size=48)
    things = scene.of("shape")
    alone = [t for t in things if [(u.color, u.name) for u in things].count((t.color, t.name)) == 1]
    words = vocabulary()
    ids = torch.tensor([[words["the"], words[alone[0].color], words[alone[0].name]]])
    heads, corner = AuxiliaryHeads(4), (2, 5)
    x, y = (center / PATCH for center in alone[0].center)
    where = [(corner[1] + x) / LOCATION_SCALE, (corner[0] + y) / LOCATION_SCALE]
    states = torch.zeros(1, 3, 4)
    states[0, 2] = torch.tensor([9.0, *where, 9.0 if alone[0].size == "large" else -9.0])
    with torch.no_grad():
        heads.named_object.weight.copy_(torch.eye(4))
        heads.named_object.bias.zero_()

    def loss(corner, ids=ids):
        return object_location_loss(heads, states, ids, [scene], corner=corner)

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
    whole = train(tmp_path / "whole", config, schedule=SHORT, save_every=2)
    monkeypatch.setattr("eos.miniature.training.train.training_step", interrupted(at=4))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", config, schedule=SHORT, save_every=2)
    monkeypatch.undo()
    resumed = train(tmp_path / "cut", config, schedule=SHORT, save_every=2)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    other = train(tmp_path / "other", config, schedule=SHORT, seed=1)
    assert not torch.equal(next(other.parameters()), next(whole.parameters()))  # control
    lines = (tmp_path / "whole" / "training.jsonl").read_text().splitlines()
    assert "presence" in json.loads(lines[-1])["validation"]
    assert (tmp_path / "whole" / "weights" / "model.safetensors").exists()


def interrupted(*, at):
    """A training step that is interrupted the given time it is called."""
    left = iter(range(at - 1, -1, -1))

    def step(model, phase, rng):
        if not next(left):
            raise KeyboardInterrupt
        return training_step(model, phase, rng)

    return step


def test_exported_weights_are_read_by_the_public_loader(tmp_path):
    import eos

    trained = TrainingModel(miniature_config(**TINY), seed=0)
    export(trained, tmp_path)
    backbone = eos.load_backbone(tmp_path)
    assert backbone.model.dtype == torch.float32
    assert LlavaForConditionalGeneration.from_pretrained(tmp_path).dtype == torch.float32
    stored = load_file(tmp_path / "model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.float16}
    for name, value in trained.model.state_dict().items():
        torch.testing.assert_close(backbone.model.state_dict()[name], value, atol=2e-3, rtol=1e-3)


def test_the_rate_rises_in_each_phase_and_falls_at_the_end():
    total = total_steps(SCHEDULE)
    rates = [rate_at(SCHEDULE, step) for step in range(total)]
    assert max(rates) == max(phase.rate for phase in SCHEDULE)
    assert rates[-1] < 0.01
    assert rates[SCHEDULE[0].steps] < 0.1  # the second phase begins gently
    assert phase_at(SCHEDULE, total - 1) == (SCHEDULE[-1], SCHEDULE[-1].steps - 1)
    with pytest.raises(IndexError):
        phase_at(SCHEDULE, total)


@pytest.mark.parametrize("conversation", [False, True])
def test_split_attention_is_attention_with_the_whole_mask(model, conversation):
    rng = np.random.default_rng(3)
    batch = make_batch(["objects", "chart"], rng, size=48, conversation=conversation)
    features = torch.randn(2, 144, TINY["width"])
    logits, _ = run_decoder(model, batch, features)
    words = model.get_input_embeddings()(batch.ids)
    given = torch.cat([words[:, :2], features, words[:, 146:]], dim=1)

    def whole(mask):
        out = model.model.language_model(
            inputs_embeds=given, attention_mask=mask, position_ids=batch.positions
        )
        return model.lm_head(out.last_hidden_state)

    asked = batch.weights > 0
    assert torch.allclose(logits[asked], whole(batch.mask())[asked], atol=1e-5)
    everything = torch.zeros_like(batch.mask())  # a mask that hides nothing is another one
    assert not torch.allclose(logits[asked], whole(everything)[asked], atol=1e-5)


def test_relevant_patches_show_what_a_word_names(model):
    scene = draw_scene("objects", np.random.default_rng(4), size=48)
    labels, words = label_patches([scene]), vocabulary()
    thing = scene.of("shape")[0]
    ids = torch.tensor([[words[thing.color], words[PLURALS[thing.name]], words["what"]]])
    color, shape, other = relevant_patches(ids, labels)[0]
    assert torch.equal(color, labels.heads["color"][0] == TINTS.index(thing.color))
    assert torch.equal(shape, labels.heads["content"][0] == CONTENTS.index(f"shape {thing.name}"))
    assert torch.equal(other, labels.heads["content"][0] > 0)
    absent = next(c for c in COLORS if all(t.color != c for t in scene.of("shape")))
    elsewhere = relevant_patches(torch.tensor([[words[absent]]]), labels)[0, 0]
    assert torch.equal(elsewhere, other)  # nothing that it names is there


def test_recorded_attention_is_the_share_that_relevant_patches_get(model):
    batch = make_batch(["objects"], np.random.default_rng(3), size=48)
    features = torch.randn(1, 144, TINY["width"], generator=torch.Generator().manual_seed(0))
    words = batch.ids[:, 146:]
    relevant = torch.zeros(1, words.shape[1], 144, dtype=torch.bool)
    relevant[..., :36] = True
    attention = ImageAttention(relevant, layers=(1,))
    run_decoder(model, batch, features, attention=attention)
    given = model.get_input_embeddings()(batch.ids)
    given = torch.cat([given[:, :2], features, given[:, 146:]], dim=1)
    eager = deepcopy(model)
    eager.set_attn_implementation("eager")
    out = eager.model.language_model(
        inputs_embeds=given,
        attention_mask=batch.mask(),
        position_ids=batch.positions,
        output_attentions=True,
    )
    looks = out.attentions[1][:, :, 146:, 2:146]
    share = (looks / looks.sum(-1, keepdim=True)).mean(1)[..., :36].sum(-1)
    assert torch.allclose(attention.shares[0], share, atol=1e-5)
    best = ImageAttention(relevant, (1,), [torch.ones_like(share)])
    assert attention_loss(best, words) < 1e-6 < attention_loss(attention, words)
    blank = ImageAttention(torch.zeros_like(relevant), (1,), [torch.zeros_like(share)])
    assert attention_loss(blank, words) == 0
