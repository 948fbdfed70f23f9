"""A task like a published benchmark: several references, soft scores, sizes of its own.

Its images have two sizes, so that prompts of a family that takes any size have two lengths.
"""

from dataclasses import replace
from math import sqrt

import pytest
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlavaNextImageProcessorPil, LlavaNextProcessor, PreTrainedTokenizerFast

import eos
from eos.evaluation.answering import Answerer
from eos.evaluation.ledger import Ledger
from eos.evaluation.tasks import TASKS, Item, Task, TaskFamily
from eos.report.evaluation import markdown, show_evaluation
from eos.testing.tiny import CONFIGS, IMAGE, tiny_backbone

WORDS = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{n}" for n in range(4, 128))]
WORDS[IMAGE] = "<image>"
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{{ '<image> ' if part['type'] == 'image' else part['text'] + ' ' }}"
    "{% endfor %}{% endfor %}"
)
SIZES = [(48, 24), (24, 24)]  # width, height
LENGTH = 3  # tokens of an answer
# how many of ten annotators give the model's own answer; three make a full score
AGREEING = {"read": (0, 1, 2, 3, 4, 7, 10), "count": (0, 1, 3)}


def soft_score(prediction, answers):
    """VQA accuracy: a third for each annotator who gives the same answer, at most 1."""
    return min(1.0, answers.count(prediction) / 3)


@pytest.fixture(scope="module")
def answerer():
    words = Tokenizer(WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = WhitespaceSplit()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, extra_special_tokens={"image_token": "<image>"}, **special
    )
    pictures = LlavaNextImageProcessorPil(
        size={"height": 24, "width": 24},
        crop_size={"height": 24, "width": 24},
        image_grid_pinpoints=CONFIGS["llava_next"]["image_grid_pinpoints"],
    )
    processor = LlavaNextProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )
    backbone = tiny_backbone("llava_next")
    # a random model may say anything: no placeholders, no early end, only words
    backbone.model.generation_config.suppress_tokens = [0, 1, 2, 3, IMAGE]
    return Answerer(backbone, processor)


def question(family, number, answers=("",)):
    """Ask about an image of one of two sizes, its colours from the number."""
    shade = (7 * number, 255 - 11 * number, 60 + 40 * (family == "read"))
    parts = [
        {"type": "image", "image": Image.new("RGB", SIZES[number % 2], shade)},
        {"type": "text", "text": " ".join(f"w{number + n}" for n in range(5, 7 + number % 3))},
    ]
    return Item([{"role": "user", "content": parts}], tuple(answers), None, f"{family}-{number}")


@pytest.fixture(scope="module")
def said(answerer):
    """What the full model answers, one question at a time."""
    found = {}
    for family, agreeing in AGREEING.items():
        for number in range(len(agreeing)):
            item = question(family, number)
            [(_, [text])] = answerer.answers([item], {"full": None}, max_new_tokens=LENGTH)
            found[family, number] = text
    return found


@pytest.fixture
def task(said, monkeypatch):
    def item(split, family, *, number, seed):
        agreeing = AGREEING[family][number]
        same, other = [said[family, number]] * agreeing, ["something else"] * (10 - agreeing)
        return question(family, number, other + same)

    made = Task(
        name="vqa",
        what="A small benchmark.",
        note="Made up.",
        families={
            name: TaskFamily("all", sizes={"test": len(agreeing)})
            for name, agreeing in AGREEING.items()
        },
        splits=("train", "test"),
        item=item,
        metric=soft_score,
        max_new_tokens=LENGTH,
    )
    monkeypatch.setitem(TASKS, "vqa", made)
    return made


def evaluated(answerer, out, plans, **options):
    settings = {"task": "vqa", "batch_size": 4, "processor": answerer.processor, **options}
    return eos.evaluate(answerer.backbone, plans, out=out, **settings)


def plans_for(answerer):
    tokens = answerer.visual_tokens(question("read", 0))
    return {
        name: eos.Plan(
            visual_tokens=tokens,
            num_layers=4,
            steps=[eos.Step(layer=1, keep=round(share * tokens))],
        )
        for name, share in [("keep", 1.0), ("drop", 0.1)]
    }


def test_soft_scores_by_hand():
    assert soft_score("a", ["a"] * 2 + ["b"] * 8) == pytest.approx(2 / 3)
    assert soft_score("b", ["a"] * 2 + ["b"] * 8) == 1
    assert soft_score("c", ["a"] * 2 + ["b"] * 8) == 0


def test_images_of_two_sizes_share_a_batch(answerer):
    items = [question("read", 0), question("read", 1)]
    assert answerer.visual_tokens(items[0]) != answerer.visual_tokens(items[1])
    plan = {"drop": plans_for(answerer)["drop"]}
    (together,) = [texts for _, texts in answerer.answers(items, plan, max_new_tokens=1)]
    alone = [
        texts[0] for item in items for _, texts in answerer.answers([item], plan, max_new_tokens=1)
    ]
    assert together == alone


def test_a_benchmark_is_evaluated_end_to_end(answerer, task, said, tmp_path):
    results = evaluated(answerer, tmp_path, plans_for(answerer))
    assert {name: own.n for name, own in results.families.items()} == {"read": 7, "count": 3}
    assert {own.chance for own in results.families.values()} == {None}
    full = results.row("full")
    # 0, 1/3, 2/3 and four full scores; 0, 1/3 and 1
    assert full.families["read"].accuracy == pytest.approx(500 / 7, abs=1e-5)
    assert full.families["count"].accuracy == pytest.approx(400 / 9, abs=1e-5)
    assert full.average.accuracy == pytest.approx((500 / 7 + 400 / 9) / 2, abs=1e-5)
    # thirds 0, 1, 3 about 4/3: squares 16/9 + 1/9 + 25/9 = 42/9, over 2 and over 3
    assert full.families["count"].stderr == pytest.approx(100 / 3 * sqrt(42 / 54), abs=1e-5)
    assert full.average.n == 10
    kept = results.row("keep").average.difference
    assert (kept.points, kept.stderr) == (0.0, 0.0)
    assert results.row("drop").average.difference.points < 0
    ledger = Ledger(tmp_path / "predictions.jsonl")
    for (family, number), text in said.items():
        found = ledger.of("full", family)[number]
        assert found.prediction == text  # in a batch as alone
        assert found.score == pytest.approx(min(1, AGREEING[family][number] / 3))
        assert len(found.answers) == 10
        assert len(text.split()) == LENGTH


def test_the_limit_is_a_cap_and_a_resumed_evaluation_is_the_same(answerer, task, tmp_path):
    counted = []
    capped = evaluated(answerer, tmp_path / "capped", {}, limit=5)
    assert {name: own.n for name, own in capped.families.items()} == {"read": 5, "count": 3}
    evaluated(answerer, tmp_path / "whole", {}, watch=lambda *counts: counted.append(counts))
    assert counted[-1] == (10, 10)
    again = tmp_path / "again"
    again.mkdir()
    (again / "config.json").write_bytes((tmp_path / "whole" / "config.json").read_bytes())
    lines = (tmp_path / "whole" / "predictions.jsonl").read_text().splitlines(keepends=True)
    (again / "predictions.jsonl").write_text("".join([*lines[:2], lines[8]]))
    evaluated(answerer, again, {})
    for name in ("predictions.jsonl", "results.json"):
        assert (again / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_without_a_length_of_its_own_an_answer_is_as_long_as_the_references(
    answerer, task, tmp_path, monkeypatch
):
    monkeypatch.setitem(TASKS, "vqa", replace(task, max_new_tokens=None))
    evaluated(answerer, tmp_path, {})
    lengths = {
        len(p.prediction.split())
        for p in Ledger(tmp_path / "predictions.jsonl").of("full", "read").values()
    }
    assert lengths == {LENGTH + 1}  # the longest reference, and one token to end it


def test_an_unknown_chance_is_a_dash_in_tables(answerer, task, tmp_path, capsys):
    results = evaluated(answerer, tmp_path, {})
    [line] = [line for line in markdown(results).splitlines() if line.startswith("| *chance*")]
    assert [cell.strip() for cell in line.split("|")[5:-1]] == ["-"] * 4
    show_evaluation(results, width=120)
    assert "n = 3 to 7 questions" in capsys.readouterr().out
    known = results.families["read"].model_copy(update={"chance": 20.0})
    mixed = results.model_copy(update={"families": {**results.families, "read": known}})
    [line] = [line for line in markdown(mixed).splitlines() if line.startswith("| *chance*")]
    assert [cell.strip() for cell in line.split("|")[5:-1]] == ["20.0", "-", "-", "-"]


def test_a_metric_outside_its_range_and_too_few_questions_are_refused(
    answerer, task, tmp_path, monkeypatch
):
    monkeypatch.setitem(TASKS, "vqa", replace(task, metric=lambda text, answers: 10))
    with pytest.raises(eos.DataError, match=r"expected a score between 0 and 1 .* found 10"):
        evaluated(answerer, tmp_path / "out", {})
    few = {**task.families, "one": TaskFamily("all", sizes={"test": 1})}
    monkeypatch.setitem(TASKS, "vqa", replace(task, families=few))
    with pytest.raises(eos.ConfigError, match="at least 2 questions of one in test"):
        evaluated(answerer, tmp_path / "few", {})
