"""What the model `eos` of lmms-eval does, without its package."""

from pathlib import Path

import pytest
from PIL import Image

import eos
from eos import ConfigError, DataError
from eos.engine.reduced import named_plan
from eos.evaluation.answering import Answerer
from eos.evaluation.harness import (
    Limits,
    Request,
    Responder,
    manifest,
    read_limits,
    read_messages,
    user_turn,
)
from eos.models.processor import load_processor, read_conversations

ROOT = Path(__file__).parent.parent
QUESTIONS = ["is there a red circle ?", "how many circles ?", "is there a square to the left ?"]


@pytest.fixture(scope="module")
def answerer(sibling):
    backbone = eos.load_backbone(sibling)
    return Answerer(backbone, load_processor(backbone.model))


def asked(number, images=1):
    """A question about images of one colour."""
    shown = [Image.new("RGB", (96, 96), (40 * number, 90, 20))] * images
    return user_turn(QUESTIONS[number % 3], shown, where=str(number))


def plain(answerer, messages, plan, length):
    """One request by plain `generate`."""
    inputs = read_conversations(answerer.processor, [messages])
    model = answerer.backbone.model
    start = inputs["input_ids"].shape[1]
    given = {"max_new_tokens": length, "do_sample": False}
    if plan is None:
        ids = model.generate(**inputs, **given)
    else:
        with eos.reduced(answerer.backbone, plan) as running:
            ids = running.generate(**inputs, **given)
    return answerer.processor.decode(ids[0, start:], skip_special_tokens=True).strip()


@pytest.mark.parametrize("spec", [None, "fastv@16", "visionzip@9"])
def test_batches_answer_as_plain_generate_does(answerer, spec):
    plan = spec and named_plan(spec, answerer.backbone)
    requests = [Request(asked(n), Limits(3 + n % 2)) for n in range(5)]
    expected = {
        n: plain(answerer, x.messages, plan, x.limits.max_new_tokens)
        for n, x in enumerate(requests)
    }
    for size in (1, 4):
        assert dict(Responder(answerer, plan, size).texts(requests)) == expected
    assert len(set(expected.values())) > 1  # the control: answers that could be told apart


def test_text_alone_is_answered_too(answerer):
    messages = user_turn(QUESTIONS[0], [], where="x")
    plan = named_plan("fastv@16", answerer.backbone)
    (found,) = Responder(answerer, plan, 2).texts([Request(messages, Limits(3))])
    assert found == (0, plain(answerer, messages, None, 3))


@pytest.mark.parametrize("spec", [None, "fastv@16"])
def test_losses_are_those_of_the_model(answerer, spec):
    plan = spec and named_plan(spec, answerer.backbone)
    words = ["yes", "no", "red circle"]
    said = [
        [*asked(n), {"role": "assistant", "content": [{"type": "text", "text": words[n]}]}]
        for n in range(3)
    ]
    found = dict(Responder(answerer, plan, 3).losses(said))
    alone = dict(Responder(answerer, plan, 1).losses(said))
    for n in range(3):
        assert found[n] == (pytest.approx(alone[n][0], abs=1e-5), alone[n][1])
        if spec is None:
            assert found[n][0] == pytest.approx(model_loss(answerer, said[n]), abs=1e-5)
    assert len({round(loss, 3) for loss, _ in found.values()}) == 3  # the control


def model_loss(answerer, messages):
    """The loss that the model itself computes of all that follows the prompt."""
    start = read_conversations(answerer.processor, [messages[:-1]])["input_ids"].shape[1]
    inputs = answerer.processor.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_tensors="pt"
    )
    labels = inputs["input_ids"].clone()
    labels[:, :start] = -100
    return answerer.backbone.model(**inputs, labels=labels).loss.item()


def test_limits_are_read_and_sampling_is_refused():
    assert read_limits({}) == Limits()
    assert read_limits({"until": None, "max_new_tokens": 4}) == Limits(4)
    assert read_limits({"until": "###", "do_sample": False, "temperature": 0.7}).until == ("###",)
    assert Limits(until=("\n\n",)).cut("yes\n\nor") == "yes"
    assert Limits(until=("\n\n",)).cut("yes") == "yes"
    for options in ({"temperature": 0.7}, {"num_beams": 3}, {"do_sample": True, "temperature": 1}):
        with pytest.raises(ConfigError, match="decodes greedily"):
            read_limits(options)


def test_messages_of_images_and_text_are_read_and_others_refused():
    grey = Image.new("L", (8, 8))
    content = [{"type": "image", "url": grey}, {"type": "text", "text": "<image> what ?"}]
    (message,) = read_messages([{"role": "user", "content": content}], where="task/test/0")
    assert message["content"][0]["image"].mode == "RGB"
    assert message["content"][1] == {"type": "text", "text": " what ?"}
    for part in ({"type": "video", "url": "a.mp4"}, {"type": "image", "url": "a.jpg"}):
        with pytest.raises(DataError, match="task/test/0: expected text and images"):
            read_messages([{"role": "user", "content": [part]}], where="task/test/0")


def test_one_plan_is_wanted(answerer):
    with pytest.raises(ConfigError, match="expected one plan"):
        named_plan("fastv@32,16", answerer.backbone)


def test_the_entry_point_names_a_function():
    """Which lmms-eval looks for in every installed package."""
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    points = tomllib.loads(text)["project"]["entry-points"]["lmms_eval.models"]
    assert points == {"eos": f"{manifest.__module__}:{manifest.__name__}"}
