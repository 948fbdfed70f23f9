"""predictions.jsonl: what was written stays, a torn line goes."""

import pytest

from eos import DataError
from eos.evaluation.ledger import Ledger, Prediction


def prediction(run="full", family="presence", number=0, text="yes"):
    return Prediction(
        run=run,
        id=f"{family}/{number}",
        family=family,
        number=number,
        prediction=text,
        answers=("yes",),
        score=float(text == "yes"),
        chance=0.5,
    )


def test_what_is_appended_is_read_again(tmp_path):
    path = tmp_path / "predictions.jsonl"
    ledger = Ledger(path)
    ledger.append([prediction(number=1), prediction(number=0, text="nö")])
    ledger.append([prediction(run="a")])
    again = Ledger(path)
    assert again.known == ledger.known
    assert again.of("full", "presence")[0].prediction == "nö"
    assert again.of("full", "counting") == {}


def test_the_first_prediction_stands(tmp_path):
    ledger = Ledger(tmp_path / "predictions.jsonl")
    ledger.append([prediction(text="yes")])
    before = ledger.path.read_bytes()
    ledger.append([prediction(text="no")])
    assert ledger.path.read_bytes() == before
    assert Ledger(ledger.path).of("full", "presence")[0].prediction == "yes"


def test_a_torn_line_is_dropped_at_every_byte(tmp_path):
    path = tmp_path / "predictions.jsonl"
    Ledger(path).append([prediction(number=n, text="nö") for n in range(3)])
    data = path.read_bytes()
    line = len(data) // 3
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        ledger = Ledger(path)
        assert len(ledger.of("full", "presence")) == cut // line
        assert path.read_bytes() == data[: cut // line * line]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "predictions.jsonl"
    Ledger(path).append([prediction(number=n) for n in range(3)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:20] + b"\n" + lines[2])
    with pytest.raises(DataError, match="line 2: expected a prediction"):
        Ledger(path)
    path.write_bytes(lines[0] + lines[1].replace(b'"yes"', b"7", 1) + lines[2])
    with pytest.raises(DataError, match="prediction"):
        Ledger(path)


def test_a_line_of_an_earlier_version_is_read_and_a_wrong_one_refused(tmp_path):
    path = tmp_path / "predictions.jsonl"
    old = '{"run":"full","id":"a","family":"x","number":0,"prediction":"no","answer":"yes",'
    path.write_text(old + '"correct":true,"chance":0.5}\n')
    found = Ledger(path).of("full", "x")[0]
    assert (found.answers, found.score, found.chance) == (("yes",), 1.0, 0.5)
    for wrong in ('"correct":"so","chance":0.5}', '"score":1.5,"chance":0.5}', '"correct":true}'):
        path.write_text(f"{old}{wrong}\n")
        with pytest.raises(DataError, match="line 1: expected a prediction"):
            Ledger(path)


def test_the_order_of_writing_does_not_show_in_the_end(tmp_path):
    made = [prediction(r, f, n) for r in ("full", "x") for f in ("x", "a") for n in range(12)]
    texts = []
    for name, order in [("one", made), ("two", made[::-1])]:
        ledger = Ledger(tmp_path / name)
        ledger.append(order)
        before = ledger.path.read_bytes()
        ledger.arrange(["full", "x"], ["x", "a"])
        texts.append(ledger.path.read_bytes())
    assert texts[0] == texts[1] != before
    assert list(Ledger(ledger.path).known) == [("full", "x"), ("full", "a"), ("x", "x"), ("x", "a")]
