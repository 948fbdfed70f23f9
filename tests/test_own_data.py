"""Complaint 11: what was searched on cannot be measured on. Evaluation on one's own questions."""

import json
from typing import get_args

import pytest
from PIL import Image

import eos
from eos import ConfigError, DataError, LlavaData, cli
from eos.commands.options import MetricChoice
from eos.evaluation import own_data
from eos.evaluation.answering import Answerer
from eos.evaluation.ledger import Ledger
from eos.evaluation.own_data import METRICS, contains_words, own_task, same_words, words_of

QUESTION = "is there a red circle ?"
SHADES = [(0, 255, 60), (40, 225, 60), (80, 195, 60), (120, 165, 60), (160, 135, 60)]


def conversation(name, answer, *, question=QUESTION, image=None, before=()):
    turns = [*before, question, answer]
    talk = [{"from": ("human", "gpt")[i % 2], "value": text} for i, text in enumerate(turns)]
    return {"id": name, "image": image or f"{name}.png", "conversations": talk}


@pytest.fixture
def folder(tmp_path):
    """A folder of images; the questions are written by each test."""
    images = tmp_path / "images"
    images.mkdir()
    for number, shade in enumerate(SHADES):
        Image.new("RGB", (96, 96), shade).save(images / f"q{number}.png")
    return tmp_path


def write(folder, entries, name="my.json"):
    (folder / name).write_text(json.dumps(entries))
    return LlavaData(file=str(folder / name), images=str(folder / "images"))


@pytest.fixture(scope="module")
def answerer(sibling):
    return Answerer(eos.load_backbone(sibling), eos.load_processor(sibling))


def said(answerer, data, length):
    """What the full model answers, one question at a time, by id."""
    task = own_task(data, metric="exact", limit=100, seed=0)
    count = task.families["exact"].sizes["all"]
    items = [task.item("all", "exact", number=n, seed=0) for n in range(count)]
    return {
        item.id: next(answerer.answers([item], {"full": None}, max_new_tokens=length))[1][0]
        for item in items
    }


def scores(out, family):
    return {p.id: p.score for p in Ledger(out / "predictions.jsonl").of("full", family).values()}


def test_11_metrics_on_predictions_worked_by_hand():
    assert same_words("  Two   RED circles! ", ["two red circles"]) == 1
    assert same_words("two red circles and a dog", ["two red circles"]) == 0
    assert same_words("b", ["a", "B."]) == 1
    assert same_words("3.5", ["35"]) == 0
    assert same_words("-3", ["3"]) == 0
    assert contains_words("There are two red circles.", ["Two red circles"]) == 1
    assert contains_words("two big red circles", ["two red circles"]) == 0  # not in a row
    assert contains_words("it snowed", ["no"]) == 0  # no whole word
    assert contains_words("No, it did not.", ["no"]) == 1
    assert contains_words("anything", [""]) == 0
    assert contains_words("anything", ["?"]) == 0
    assert contains_words("?", ["?"]) == 1
    assert contains_words("", ["a"]) == 0
    assert words_of("It's 12:30, don’t") == ["it's", "12:30", "don’t"]


def test_11_names_of_metrics_are_the_same_everywhere():
    assert set(METRICS) == set(get_args(own_data.MetricName)) == {x.value for x in MetricChoice}


def test_11_plans_are_scored_on_own_questions(answerer, folder, tmp_path):
    data = write(folder, [conversation(f"q{n}", "?") for n in range(5)])
    words = {name: text.split() for name, text in said(answerer, data, 6).items()}
    references = [
        f"{words['q0'][1].lower()}, {words['q0'][2].upper()}!",  # two words in a row
        words["q1"][0],
        f"{words['q2'][2]} {words['q2'][0]}",  # in another order
        words["q3"][0] * 2,  # no whole word
        "elephant",
    ]
    entries = [conversation(f"q{n}", text) for n, text in enumerate(references)]
    out = tmp_path / "out"
    plan = {"drop": eos.Plan.preset("fastv", budget=9, model=answerer.backbone)}
    results = eos.evaluate(answerer.backbone, plan, data=write(folder, entries), out=out)
    assert scores(out, "contains") == {"q0": 1, "q1": 1, "q2": 0, "q3": 0, "q4": 0}
    assert results.row("full").average.accuracy == 40
    assert results.families["contains"].n == 5
    assert results.families["contains"].chance is None
    assert results.row("drop").average.difference is not None
    assert "'contains': 1 if the words of a reference occur" in results.note
    assert (results.task, results.split) == ("data", "all")
    assert (out / "skipped.jsonl").read_text() == ""


def test_11_exact_needs_the_same_words(answerer, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(own_data, "SPARE_TOKENS", 0)  # as many tokens as the longest reference
    data = write(folder, [conversation(f"q{n}", "?") for n in range(3)])
    texts = said(answerer, data, 3)
    references = [f"{texts['q0'].upper()}.", texts["q1"].split()[0], "a red circle"]
    entries = [conversation(f"q{n}", text) for n, text in enumerate(references)]
    data, out = write(folder, entries), tmp_path / "out"
    results = eos.evaluate(answerer.backbone, data=data, metric="exact", out=out)
    assert scores(out, "exact") == {"q0": 1, "q1": 0, "q2": 0}
    assert "'exact'" in results.note
    other = eos.evaluate(answerer.backbone, data=data, metric="contains", out=tmp_path / "other")
    assert other.row("full").average.accuracy == pytest.approx(200 / 3, abs=1e-4)


def test_11_earlier_turns_belong_to_the_prompt(folder):
    before = ("<image> what color ?", "blue")
    entries = [conversation("q0", "yes", before=before), conversation("q1", "no")]
    task = own_task(write(folder, entries), metric="contains", limit=9, seed=0)
    items = [task.item("all", "contains", number=n, seed=0) for n in (0, 1)]
    item = next(item for item in items if item.id == "q0")
    assert item.answers == ("yes",)
    assert [message["role"] for message in item.messages] == ["user", "assistant", "user"]
    assert "yes" not in json.dumps(item.messages, default=str)


def broken(folder):
    """Five usable samples and three that are not."""
    (folder / "images" / "torn.png").write_bytes(b"no image")
    return write(
        folder,
        [
            conversation("gone", "yes"),
            *(conversation(f"q{n}", f"answer {n}") for n in range(5)),
            conversation("torn", "yes"),
            conversation("mute", " ", image="q0.png"),
        ],
    )


def test_11_unusable_samples_are_skipped_counted_and_named(answerer, folder, tmp_path):
    results = eos.evaluate(answerer.backbone, data=broken(folder), out=tmp_path / "out")
    assert results.families["contains"].n == 5
    assert "5 of 8 samples, 3 unusable ones skipped" in results.note
    lines = [json.loads(x) for x in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    assert {line["id"] for line in lines} == {"gone", "torn", "mute"}
    assert all("expected an" in line["reason"] for line in lines)


def test_11_the_limit_draws_by_the_seed(folder):
    data = broken(folder)

    def drawn(limit, seed):
        task = own_task(data, metric="contains", limit=limit, seed=seed)
        count = task.counts("all", limit)["contains"]
        return [task.item("all", "contains", number=n, seed=seed).id for n in range(count)]

    assert len(drawn(3, 0)) == 3
    assert drawn(3, 0) == drawn(5, 0)[:3] == drawn(3, 0)
    assert {tuple(drawn(3, seed)) for seed in range(9)} > {tuple(drawn(3, 0))}
    assert sorted(drawn(100, 0)) == sorted(drawn(100, 1)) == [f"q{n}" for n in range(5)]


def test_11_an_evaluation_resumes_and_refuses_changed_data(answerer, folder, tmp_path):
    data, whole, again = broken(folder), tmp_path / "whole", tmp_path / "again"
    eos.evaluate(answerer.backbone, ["fastv@9"], data=data, out=whole, batch_size=2)
    again.mkdir()
    (again / "config.json").write_bytes((whole / "config.json").read_bytes())
    lines = (whole / "predictions.jsonl").read_text().splitlines(keepends=True)
    (again / "predictions.jsonl").write_text("".join([lines[1], lines[7]]))
    eos.evaluate(answerer.backbone, ["fastv@9"], data=data, out=again, batch_size=2)
    for name in ("predictions.jsonl", "results.json", "skipped.jsonl"):
        assert (again / name).read_bytes() == (whole / name).read_bytes()
    Image.new("RGB", (96, 96), (1, 2, 3)).save(folder / "images" / "q3.png")
    with pytest.raises(
        ConfigError, match=r"holds another evaluation: expected data 'llava my\.json"
    ):
        eos.evaluate(answerer.backbone, data=data, out=again)
    with pytest.raises(ConfigError, match=r"expected families \('contains',\)"):
        eos.evaluate(answerer.backbone, data=data, metric="exact", out=again)


def test_11_data_without_two_usable_samples_is_refused(answerer, folder, tmp_path):
    data = write(folder, [conversation("q0", "yes"), conversation("gone", "yes")])
    with pytest.raises(DataError, match=r"at least 2 usable .* found 1. Skipped, .*gone.png"):
        eos.evaluate(answerer.backbone, data=data, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_11_options_of_a_task_and_of_data_exclude_each_other(answerer, folder, tmp_path):
    data, model = broken(folder), answerer.backbone
    for given in ({"task": "mini"}, {"split": "test"}):
        with pytest.raises(ConfigError, match="expected data, or a task"):
            eos.evaluate(model, data=data, out=tmp_path / "out", **given)
    with pytest.raises(ConfigError, match="metric with data only"):
        eos.evaluate(model, metric="exact", out=tmp_path / "out")
    with pytest.raises(ConfigError, match="exact, contains; found 'bleu'"):
        eos.evaluate(model, data=data, metric="bleu", out=tmp_path / "out")
    with pytest.raises(DataError, match=r"data settings.* found dict"):
        eos.evaluate(model, data={"file": "my.json"}, out=tmp_path / "out")


def test_11_the_command_line_takes_a_file_and_a_folder(sibling, folder, tmp_path, capsys):
    broken(folder)
    command = ["eval", "--backbone", str(sibling), "--out", str(tmp_path / "out"), "--limit", "4"]
    own = ["--data", str(folder / "my.json"), "--images", str(folder / "images")]
    assert cli.main([*command, *own, "--plan", "fastv@9", "--metric", "exact", "--quiet"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "exact" in shown
    assert "4 of 8 samples" in shown
    assert cli.main(["validate", str(tmp_path / "out" / "config.json")]) == 0
    capsys.readouterr()
    assert cli.main([*command, *own[:2]]) == 1
    assert "--images FOLDER together; found only --data" in capsys.readouterr().err
    assert cli.main([*command, *own, "--tasks", "mini"]) == 1
    assert "found data and 'mini'" in capsys.readouterr().err
    own[1] = str(folder / "gone.json")
    assert cli.main([*command, *own]) == 1
    assert "gone.json: No such file" in capsys.readouterr().err
