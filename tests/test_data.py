"""Sources, the order of samples, and what of a sample is taught."""

import json
import string
from collections import Counter

import pytest
import torch
from PIL import Image
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlavaNextImageProcessorPil, LlavaNextProcessor, PreTrainedTokenizerFast

from eos import ConfigError, DataError
from eos.data.batches import Reader
from eos.data.order import choices, first_choice, held_out
from eos.data.samples import Sample, Subset, UnusableError, load_image
from eos.data.settings import HubData, LlavaData, WorldData
from eos.data.sources import LlavaSource, WorldSource, conversation, open_source
from eos.miniature.language import END, make_processor
from eos.miniature.model import PATCH, SIZE
from eos.tokens import IGNORED

TURNS = [
    {"from": "human", "value": "<image>\nis there a red circle ?"},
    {"from": "gpt", "value": "yes"},
    {"from": "human", "value": "what color is the square ?"},
    {"from": "gpt", "value": "blue"},
]
# every turn ends with a mark and a line break
CHARACTERS = (
    "{% for m in messages %}[{{ m['role'] }}]\n{% for p in m['content'] %}"
    "{{ '<image>' if p['type'] == 'image' else p['text'] }}{% endfor %}[end]\n{% endfor %}"
    "{{ '[assistant]\n' if add_generation_prompt else '' }}"
)


@pytest.fixture(scope="module")
def processor():
    return make_processor(size=SIZE, patch=PATCH)


@pytest.fixture(scope="module")
def another():
    return tiles_processor()


def tiles_processor():
    """Make the processor of another family: letters for tokens, tiles for images."""
    letters = ["<pad>", "<unk>", "<image>", *string.printable]
    words = Tokenizer(WordLevel({x: i for i, x in enumerate(letters)}, unk_token="<unk>"))
    words.pre_tokenizer = Split(Regex("[\\s\\S]"), "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        unk_token="<unk>",
        extra_special_tokens={"image_token": "<image>"},
    )
    pictures = LlavaNextImageProcessorPil(
        size={"shortest_edge": 16},
        crop_size={"height": 16, "width": 16},
        image_grid_pinpoints=[[16, 32], [32, 16], [32, 32]],
    )
    return LlavaNextProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHARACTERS,
    )


class Listed:
    """A source of given samples; None is one that cannot be used."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def describe(self):
        """Say what this is."""
        return "listed"

    def name(self, index):
        """Name a sample."""
        return str(index)

    def sample(self, index):
        """Give a sample."""
        if self.samples[index] is None:
            raise UnusableError(f"{index}: expected something, found nothing")
        return self.samples[index]


def picture(width=SIZE, height=SIZE):
    return Image.new("RGB", (width, height), (200, 10, 10))


def talk(turns=TURNS, **size):
    return Sample("talk", conversation(turns, [picture(**size)], where="talk"))


def taught_text(reader, *samples):
    """Decode what is taught of each sample."""
    answered = [reader.read(i) for i in range(len(samples))]
    inputs, labels = reader.inputs(answered)
    assert inputs["input_ids"].shape == labels.shape
    taught = labels != IGNORED
    assert torch.equal(labels[taught], inputs["input_ids"][taught])
    return [reader.processor.tokenizer.decode(row[row != IGNORED]) for row in labels]


def test_the_answers_of_all_turns_or_the_last_are_taught(processor):
    source = Listed([talk(), talk(TURNS[:2])])
    assert taught_text(Reader(source, processor), *source.samples) == [
        f"yes {END} blue {END}",
        f"yes {END}",
    ]
    last = Reader(source, processor, taught="last")
    assert taught_text(last, *source.samples) == [f"blue {END}", f"yes {END}"]


def test_labels_are_where_the_world_says_the_answer_is(processor):
    source = open_source(WorldData(size=15))
    reader = Reader(source, processor, taught="last")
    for index in range(15):
        words = taught_text_of(reader, index)
        answer = source.sample(index).messages[-1]["content"][0]["text"]
        assert words == f"{answer} {END}"


def taught_text_of(reader, index):
    _, labels = reader.inputs([reader.read(index)])
    return reader.processor.tokenizer.decode(labels[labels != IGNORED])


def test_another_familys_processor_is_read_the_same_way(another):
    sizes = {"width": 20, "height": 40}, {"width": 40, "height": 20}
    source = Listed([talk(**sizes[0]), talk(TURNS[:2], **sizes[1])])
    reader = Reader(source, another)
    told = taught_text(reader, *source.samples)
    assert [text.replace(" ", "") for text in told] == ["yes[end]blue[end]", "yes[end]"]
    inputs, labels = reader.inputs([reader.read(0), reader.read(1)])
    images = (inputs["input_ids"] == another.tokenizer.convert_tokens_to_ids("<image>")).sum(1)
    assert bool((images > 16).all())  # really tiles
    assert inputs["attention_mask"][1, 0] == 0  # padded at the left
    assert labels[1, -1] == IGNORED  # the template's line break after the mark
    assert labels[1, -2] != IGNORED


def test_a_template_that_rewrites_earlier_turns_is_refused(processor):
    forgetful = make_processor(size=SIZE, patch=PATCH)
    forgetful.chat_template = processor.chat_template.replace(
        "part['text'] + ' '", "('' if loop.last and messages|length > 2 else part['text'] + ' ')"
    )
    reader = Reader(Listed([talk()]), forgetful)
    with pytest.raises(DataError, match="writes earlier turns the same"):
        reader.read(0)


def test_images_after_the_first_answer_need_the_last_one_only(processor):
    later = [*TURNS[:2], {"from": "human", "value": "<image> what color ?"}, TURNS[3]]
    messages = conversation(
        [{"from": "human", "value": "<image> is ?"}, *later[1:]], [picture()] * 2, where="x"
    )
    source = Listed([Sample("x", messages)])
    reader = Reader(source, processor)
    with pytest.raises(DataError, match="answers: last"):
        reader.inputs([reader.read(0)])
    assert taught_text_of(Reader(source, processor, taught="last"), 0) == f"blue {END}"


@pytest.mark.parametrize("batch", [4, 6])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_steps_samples_do_not_depend_on_the_number_of_processes(batch, count):
    def at(step, slots):
        return [first_choice(50, seed=3, step=step, slot=s, batch=batch) for s in slots]

    for step in (0, 7, 100):
        alone = at(step, range(batch))
        shared = [at(step, range(rank, batch, count)) for rank in range(count)]
        assert sorted(alone) == sorted(x for part in shared for x in part)
    assert at(0, range(batch)) != at(1, range(batch))


def test_an_epoch_shows_every_sample_once_in_an_order_of_its_own():
    shown = [first_choice(12, seed=0, step=s, slot=i, batch=4) for s in range(6) for i in range(4)]
    assert Counter(shown) == Counter(dict.fromkeys(range(12), 2))
    assert shown[:12] != shown[12:]
    other = [first_choice(12, seed=1, step=s, slot=i, batch=4) for s in range(3) for i in range(4)]
    assert shown[:12] != other


def test_an_unusable_sample_is_replaced_by_its_slot_alone(processor):
    good = talk(TURNS[:2])
    source = Listed([good if i % 3 else None for i in range(12)])
    reader = Reader(source, processor)
    alone = reader.batch(5, seed=1, size=4, slots=range(4))
    parts = [reader.batch(5, seed=1, size=4, slots=range(rank, 4, 2)) for rank in range(2)]
    used = sorted(x.index for x in alone.answered)
    assert used == sorted(x.index for part in parts for x in part.answered)
    assert not any(index % 3 == 0 for index in used)
    skipped = [
        x for step in range(6) for x in reader.batch(step, seed=1, size=4, slots=range(4)).skipped
    ]
    assert len(skipped) >= 8
    assert "expected something, found nothing" in skipped[0].reason
    assert next(choices(12, seed=1, step=0, slot=0, batch=4)) == first_choice(
        12, seed=1, step=0, slot=0, batch=4
    )


def test_a_source_without_any_usable_sample_is_given_up(processor):
    reader = Reader(Listed([None] * 3), processor)
    with pytest.raises(DataError, match="100 in a row"):
        reader.batch(0, seed=0, size=2, slots=range(2))
    with pytest.raises(DataError, match="expected usable samples in listed, found none"):
        reader.first(2, at_once=1)


def test_what_is_held_out_is_not_learnt_from():
    learnt, held = held_out(50, 10, seed=0)
    assert len(held) == 10
    assert sorted([*learnt, *held]) == list(range(50))
    assert held_out(50, 10, seed=1)[1] != held
    some = Subset(WorldSource(WorldData(size=50)), held, "10")
    assert some.name(0) == some.sample(0).id
    assert some.describe().startswith("10 of world")


def write_llava(folder, entries):
    images = folder / "images"
    images.mkdir()
    picture().save(images / "good.png")
    (images / "torn.png").write_bytes((images / "good.png").read_bytes()[:60])
    (images / "text.png").write_text("not an image")
    path = folder / "talks.json"
    path.write_text(json.dumps(entries))
    return LlavaSource(LlavaData(file=str(path), images=str(images)))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"image": "gone.png", "conversations": TURNS}, "found no file"),
        ({"image": "torn.png", "conversations": TURNS}, "image that decodes"),
        ({"image": "text.png", "conversations": TURNS}, "image that decodes"),
        ({"conversations": TURNS}, "expected an image, found none"),
        ({"image": "good.png"}, "expected a conversation, found none"),
        ({"image": "good.png", "conversations": TURNS[:1]}, "an answer last"),
        ({"image": "good.png", "conversations": TURNS[1:]}, "a question first"),
        ({"image": "good.png", "conversations": ["hm"]}, "turns of a human and of gpt"),
        (
            {"image": "good.png", "conversations": [TURNS[0], {"from": "gpt", "value": " "}]},
            "expected an answer, found an empty one",
        ),
        (
            {
                "image": "good.png",
                "conversations": [{"from": "human", "value": "<image> <image> what ?"}, TURNS[1]],
            },
            "an image for every <image>",
        ),
        (
            {
                "image": "good.png",
                "conversations": [{"from": "human", "value": "is " * 40}, TURNS[1]],
            },
            "at most 30 text tokens, found",
        ),
        ("hm", "expected an object, found str"),
    ],
)
def test_what_makes_a_sample_unusable(tmp_path, processor, entry, message):
    good = {"id": "fine", "image": "good.png", "conversations": TURNS}
    source = write_llava(tmp_path, [entry, good])
    reader = Reader(source, processor, max_text_tokens=30)
    with pytest.raises(UnusableError, match=message):
        reader.read(0)
    assert reader.read(1).sample.id == "fine"
    first = reader.first(5, at_once=2)
    assert [x.sample.id for x in first.answered] == ["fine"]
    assert len(first.skipped) == 1


def test_llava_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        LlavaSource(LlavaData(file=str(tmp_path / "gone.json"), images=str(tmp_path)))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        LlavaSource(LlavaData(file=str(tmp_path / "bad.json"), images=str(tmp_path)))
    (tmp_path / "none.json").write_text("[]")
    with pytest.raises(DataError, match="list of conversations"):
        LlavaSource(LlavaData(file=str(tmp_path / "none.json"), images=str(tmp_path)))
    (tmp_path / "one.json").write_text("[{}]")
    with pytest.raises(DataError, match="a folder of images"):
        LlavaSource(LlavaData(file=str(tmp_path / "one.json"), images=str(tmp_path / "x")))


def test_the_world_refuses_families_it_does_not_have():
    with pytest.raises(ConfigError, match="found \\['presense'\\]"):
        WorldSource(WorldData(families=("presense",)))
    source = WorldSource(WorldData(families=("presence", "digit"), size=4))
    assert [source.name(i) for i in range(3)] == [
        "presence/train/0/0",
        "digit/train/0/0",
        "presence/train/0/1",
    ]
    assert source.sample(2).id == source.name(2)


def test_a_table_of_questions_and_one_of_conversations(tmp_path, processor):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "table"
    images = [tmp_path / "a.png", tmp_path / "b.png"]
    picture().save(images[0])
    images[1].write_text("broken")
    rows = {
        "picture": [str(path) for path in images],
        "q": ["is there a red circle ?"] * 2,
        "a": ["yes", "no"],
        "talk": [TURNS, TURNS],
    }
    table = datasets.Dataset.from_dict(rows).cast_column("picture", datasets.Image())
    table.save_to_disk(str(folder))
    names = {"image": "picture", "question": "q", "answer": "a"}
    source = open_source(HubData(name=str(folder), **names))
    reader = Reader(source, processor)
    assert taught_text_of(reader, 0) == f"yes {END}"
    with pytest.raises(UnusableError, match="image that decodes"):
        reader.read(1)
    talks = open_source(HubData(name=str(folder), image="picture", conversations="talk"))
    assert taught_text_of(Reader(talks, processor), 0) == f"yes {END} blue {END}"
    with pytest.raises(DataError, match="answer not found among picture, q, a, talk"):
        open_source(HubData(name=str(folder), image="picture", question="q"))
    with pytest.raises(DataError, match="expected a dataset"):
        open_source(HubData(name=str(tmp_path / "nowhere"), **names))


def test_without_datasets_a_sentence_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(DataError, match="pip install datasets"):
        open_source(HubData(name="anything"))


def test_images_come_in_every_form(tmp_path):
    picture(8, 6).convert("L").save(tmp_path / "grey.png")
    data = (tmp_path / "grey.png").read_bytes()
    for form in (tmp_path / "grey.png", data, {"bytes": data}, picture(8, 6)):
        assert load_image(form, where="x").size == (8, 6)
        assert load_image(form, where="x").mode == "RGB"
    with pytest.raises(UnusableError, match="found NoneType"):
        load_image(None, where="x")
