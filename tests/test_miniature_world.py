"""The miniature's world: the same everywhere, never shared between splits, unguessable blind."""

import hashlib
from collections import Counter, defaultdict

import numpy as np
import pytest

from eos.errors import DataError
from eos.miniature.digits import indices, samples
from eos.miniature.drawing import INSIDE as DRAWN
from eos.miniature.drawing import sprite
from eos.miniature.families import QUESTION_FAMILIES
from eos.miniature.language import UNKNOWN, make_processor, vocabulary
from eos.miniature.model import PATCH, SIZE
from eos.miniature.questions import choice
from eos.miniature.scenes import COLORS, SCENE_KINDS, SHAPES, draw_scene
from eos.miniature.world import EVALUATED, SPLITS, example, examples


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def pixels(split: str, family: str, number: int, seed: int = 0) -> str:
    return digest(np.asarray(example(split, family, number, seed=seed).image))


RECORDED = {
    "presence": "a2dc5d0de66d17f3",
    "attribute": "93d58b235c6f2b70",
    "relation": "578a597c5f6c297d",
    "nearest": "0857d59d8c104a58",
    "digit": "c4e35f405bb91fab",
    "choice": "d656c850051665a1",
    "counting": "4f85a11a426a2abc",
    "comparison": "ff772ce2fef75cc5",
    "string": "a987b3169bc13c91",
    "chart": "8bd97cb2b596f26a",
    "bars": "aac3355cba5cf8f4",
    "link": "eab748e0614ca610",
    "path": "3ee05a20961549bf",
    "listing": "9bfc952f687e7599",
    "followup": "2b1c8c9a980818a8",
}


@pytest.mark.parametrize("family", EVALUATED)
def test_an_example_is_the_same_on_every_machine(family):
    assert pixels("test", family, 0) == RECORDED[family]
    assert pixels("test", family, 1) != RECORDED[family]


def test_splits_share_no_image_and_no_seed_does():
    seen: dict[str, set[str]] = defaultdict(set)
    for split in SPLITS:
        for family in EVALUATED:
            seen[split] |= {pixels(split, family, number) for number in range(20)}
    seen["test, another seed"] = {pixels("test", family, 0, seed=1) for family in EVALUATED}
    names = list(seen)
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            assert not seen[one] & seen[other], (one, other)
    assert {pixels("test", "digit", 3)} & seen["test"]  # control: a shared image would be seen


def test_handwritten_digits_are_those_of_scikit_learn_and_split():
    images, labels = samples()
    # recorded from sklearn.datasets.load_digits(): images as 8-bit numbers, then targets
    assert digest(np.round(images * 16).astype(np.uint8)) == "8f26b2bd9d135c25"
    assert digest(labels.astype(np.uint8)) == "8ba4f891220f5e4c"
    parts = [set(indices(split).tolist()) for split in SPLITS]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(labels) == 1797


@pytest.mark.parametrize("kind", SCENE_KINDS)
@pytest.mark.parametrize("size", [48, 64, 96])
def test_scenes_fit_their_image_and_nothing_overlaps(kind, size):
    for seed in range(15):
        scene = draw_scene(kind, np.random.default_rng(seed), size=size)
        assert scene.pixels.shape == (size, size, 3)
        for place, thing in enumerate(scene.things):
            left, top, right, bottom = thing.box
            assert 0 <= left < right <= size + 1
            assert 0 <= top < bottom <= size
            for other in scene.things[:place]:
                across = min(right, other.box[2]) - max(left, other.box[0])
                down = min(bottom, other.box[3]) - max(top, other.box[1])
                assert min(across, down) <= 1  # neighbouring digits of a number touch


def test_objects_are_crowded_and_differ_from_each_other_by_little():
    scene = draw_scene("objects", np.random.default_rng(0))
    assert len(scene.things) == 15
    for trait in ("color", "name"):
        counts = Counter(vars(thing)[trait] for thing in scene.things)
        assert sorted(counts.values()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_thing_has_its_colour_where_its_shape_is(shape):
    assert set(SHAPES) == set(DRAWN)
    for seed in range(40):
        scene = draw_scene("objects", np.random.default_rng(seed))
        for thing in scene.things:
            if thing.name != shape:
                continue
            left, top, right, bottom = thing.box
            inside = sprite(shape, right - left) == 1.0
            seen = scene.pixels[top:bottom, left:right][inside].mean(axis=0)
            nearest = min(COLORS, key=lambda c: ((seen - np.array(COLORS[c])) ** 2).sum())
            assert nearest == thing.color


@pytest.mark.parametrize("family", EVALUATED)
def test_the_text_alone_tells_no_more_than_chance(family):
    """The best guess knowing everything but the image: for each wording, its commonest answer."""
    answers: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    chances = []
    for item in examples("validation", family, count=700, seed=3):
        question = item.question
        # traits are interchangeable by symmetry: keep the wording, not the colours it names
        words = [w for w in question.text.split() if w not in COLORS and w not in SHAPES]
        answers[(question.variant, *words) if family == "attribute" else (question.variant,)][
            question.answer
        ] += 1
        chances.append(question.chance)
    if family in ("choice", "comparison", "presence", "link", "path", "relation"):
        answers = {(): sum(answers.values(), Counter())}
    count = len(chances)
    best = sum(counter.most_common(1)[0][1] for counter in answers.values()) / count
    chance = float(np.mean(chances))
    assert best <= chance + 0.06, (best, chance)


@pytest.mark.parametrize("family", QUESTION_FAMILIES)
def test_every_word_is_known_and_prompts_are_those_of_a_llava(family):
    processor = make_processor(size=SIZE, patch=PATCH)
    for item in examples("validation", family, count=25):
        question = item.question
        for text in (question.text, question.answer, *sum(question.history, ())):
            assert set(text.split()) <= set(vocabulary())
        encoded = processor.tokenizer(question.answer, add_special_tokens=False).input_ids
        assert processor.decode(encoded) == question.answer
    inputs = processor.apply_chat_template(
        item.messages(), add_generation_prompt=True, tokenize=True, return_dict=True,
        return_tensors="pt",
    )  # fmt: skip
    image = processor.tokenizer.convert_tokens_to_ids("<image>")
    assert (inputs["input_ids"] == image).sum() == 576
    assert vocabulary()[UNKNOWN] not in inputs["input_ids"]
    assert vocabulary()[UNKNOWN] in processor.tokenizer("a zebra").input_ids  # control


def test_presence_has_its_three_kinds_of_negatives_in_balance():
    variants = Counter(e.question.variant for e in examples("validation", "presence", count=600))
    assert 240 < variants["present"] < 360
    for kind in ("random", "popular", "adversarial"):
        assert 60 < variants[kind] < 140


def test_counts_are_those_of_the_picture():
    rng = np.random.default_rng(5)
    for _ in range(50):
        scene = draw_scene("objects", rng)
        question = QUESTION_FAMILIES["counting"].make(scene, rng)
        word = question.text.split()[2]
        shown = [t for t in scene.things if t.color == word or t.name == word.rstrip("s")
                 or (t.name, word) == ("cross", "crosses")]  # fmt: skip
        assert str(len(shown)) == question.answer


def test_an_unknown_family_or_split_is_named():
    with pytest.raises(DataError, match="found 'tests' and 'presence'"):
        example("tests", "presence", 0)


@pytest.mark.parametrize("share", [0.2, 0.4, 1.0])
def test_the_offers_of_a_choice_differ_and_one_is_there(share):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scene = draw_scene("objects", rng, share=share)
        question = choice(scene, rng)
        words = question.text.split("? ")[1].split()
        offers = {words[i]: (words[i + 1], words[i + 2]) for i in range(0, 12, 3)}
        assert len(set(offers.values())) == 4
        there = {(thing.color, thing.name) for thing in scene.of("shape")}
        assert [letter for letter, pair in offers.items() if pair in there] == [question.answer]
