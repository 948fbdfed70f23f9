"""Evaluations of the miniature's small sibling: same questions, any batch, any interruption."""

import json
import random
import shutil
from dataclasses import replace

import pytest
from transformers import AutoProcessor

import eos
from eos.evaluation import evaluate as module
from eos.evaluation.ledger import Ledger
from eos.evaluation.specs import named_plans
from eos.evaluation.tasks import TASKS
from eos.miniature.model import miniature_config, new_model
from eos.models.processor import (
    continue_greedily,
    fingerprint,
    load_processor,
    locate,
    look_once,
    model_name,
    place_inputs,
    read_conversations,
)
from eos.report.evaluation import markdown, show_evaluation

TASK = "mini:attribute,followup"  # questions of different lengths, and a second turn
LIMIT = 5
PLANS = ["fastv@16", "visionzip@9"]  # one that asks the vision tower, one that does not


@pytest.fixture(scope="module")
def backbone(sibling):
    return eos.load_backbone(sibling)


def run(backbone, out, plans=PLANS, **options):
    settings = {"task": TASK, "limit": LIMIT, "batch_size": 4, **options}
    return eos.evaluate(backbone, plans, out=out, **settings)


@pytest.fixture(scope="module")
def finished(backbone, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished")
    run(backbone, out)
    return out


def words(out):
    known = Ledger(out / "predictions.jsonl").known
    return {(*pair, n): p.prediction for pair, own in known.items() for n, p in own.items()}


def written(out):
    text = (out / "predictions.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_every_run_answers_every_question_and_files_are_complete(finished):
    names = sorted(path.name for path in finished.iterdir())
    assert names == ["config.json", "env.json", "predictions.jsonl", "results.json"]
    results = eos.Results.load(finished / "results.json")
    assert [row.name for row in results.rows] == ["full", *PLANS]
    assert len(words(finished)) == 3 * 2 * LIMIT
    lines = written(finished)
    assert [line["run"] for line in lines] == [r for r in ["full", *PLANS] for _ in range(10)]
    assert [line["number"] for line in lines[:5]] == list(range(5))
    env = json.loads((finished / "env.json").read_text())
    assert env["device"] == "cpu"
    assert env["packages"]["torch"]
    assert results.backbone == "sibling"
    assert results.families["followup"].chance == pytest.approx(100 / 7, abs=1e-5)
    row = results.row("fastv@16")
    assert row.cost.final_tokens == 16
    assert 0 < row.cost.flops_ratio < 1
    assert results.row("full").cost.flops_ratio == 1.0
    assert results.row("full").average.difference is None


def test_the_batch_size_changes_nothing(backbone, finished, tmp_path):
    run(backbone, tmp_path, batch_size=1)
    assert words(tmp_path) == words(finished)


def test_how_many_questions_are_in_memory_changes_nothing(
    backbone, finished, tmp_path, monkeypatch
):
    held = []
    cut = module.batches

    def counted(items, size, **options):
        held.append(list(items))
        return cut(items, size, **options)

    monkeypatch.setattr(module, "batches", counted)
    monkeypatch.setattr(module, "IN_MEMORY", 3)
    run(backbone, tmp_path)
    assert held == 2 * [[0, 1, 2], [3, 4]]
    for name in ("results.json", "predictions.jsonl"):
        assert (tmp_path / name).read_bytes() == (finished / name).read_bytes()


def test_the_words_are_those_of_plain_generate(backbone, finished):
    """With pixels, one by one, and far more room than is needed: the beginning is the same."""
    processor = AutoProcessor.from_pretrained(backbone.model.name_or_path)
    plan = eos.Plan.preset("fastv", budget=16, num_layers=3)
    for family, number in [("attribute", 0), ("followup", 3)]:
        item = TASKS["mini"].item("test", family, number=number, seed=0)
        inputs = read_conversations(processor, [item.messages])
        length = inputs["input_ids"].shape[1]
        told = backbone.model.generate(**inputs, max_new_tokens=2, do_sample=False)
        told = processor.decode(told[0, length:], skip_special_tokens=True)
        assert told == words(finished)["full", family, number]
        with eos.reduced(backbone, plan) as model:
            told = model.generate(**inputs, max_new_tokens=2, do_sample=False)
        told = processor.decode(told[0, length:], skip_special_tokens=True)
        assert told == words(finished)["fastv@16", family, number]


def test_looking_once_is_looking_every_time(backbone):
    processor = load_processor(backbone.model)
    items = [TASKS["mini"].item("test", "string", number=n, seed=0) for n in range(3)]
    inputs = read_conversations(processor, [item.messages for item in items])
    inputs = place_inputs(backbone.model, inputs)
    seen = look_once(backbone.model, inputs)
    assert "pixel_values" not in seen
    told = [
        continue_greedily(backbone.model, given, processor=processor, new_tokens=6)
        for given in (inputs, seen, seen)
    ]
    assert told[0] == told[1] == told[2]


def test_keeping_everything_differs_by_exactly_nothing_and_dropping_does_not(backbone, tmp_path):
    keep, drop = (
        eos.Plan(
            visual_tokens=576,
            num_layers=3,
            steps=[
                {"layer": 0, "keep": count, "score": "key-norm", "operator": {"kind": "unified"}}
            ],
        )
        for count in (576, 4)
    )
    results = run(backbone, tmp_path, {"keep": keep, "drop": drop})
    told = words(tmp_path)
    pairs = [(f, n) for f in ("attribute", "followup") for n in range(LIMIT)]
    assert all(told[("keep", *pair)] == told[("full", *pair)] for pair in pairs)
    assert any(told[("drop", *pair)] != told[("full", *pair)] for pair in pairs)
    paired = results.row("keep").average.difference
    assert (paired.points, paired.stderr) == (0.0, 0.0)


def test_differences_are_those_of_the_predictions(backbone, tmp_path, monkeypatch):
    """A metric under which a random model is right now and then."""

    def lenient(text, answers):
        return len(text) % 2 == len(answers[0]) % 2

    monkeypatch.setitem(TASKS, "mini", replace(TASKS["mini"], metric=lenient))
    results = run(backbone, tmp_path, ["random@4"], limit=8)
    lines = written(tmp_path)
    right = {(x["run"], x["family"], x["number"]): x["score"] for x in lines}
    assert len(set(right.values())) == 2
    points = []
    for family in ("attribute", "followup"):
        own, full = ([right[r, family, n] for n in range(8)] for r in ("random@4", "full"))
        points.append(100 * (sum(own) - sum(full)) / 8)
        found = results.row("random@4").families[family]
        assert found.accuracy == 100 * sum(own) / 8
        assert found.difference.points == points[-1]
    assert results.row("random@4").average.difference.points == sum(points) / 2


@pytest.mark.parametrize("seed", range(4))
def test_resumed_equals_uninterrupted_wherever_it_was_torn(backbone, finished, tmp_path, seed):
    out = tmp_path / "torn"
    shutil.copytree(finished, out)
    (out / "results.json").unlink()
    data = (finished / "predictions.jsonl").read_bytes()
    lines = data.splitlines(keepends=True)
    order = random.Random(seed)
    order.shuffle(lines)  # as if written in any order
    (out / "predictions.jsonl").write_bytes(b"".join(lines)[: order.randrange(len(data))])
    run(backbone, out)
    for name in ("results.json", "predictions.jsonl", "config.json"):
        assert (out / name).read_bytes() == (finished / name).read_bytes()


def test_a_folder_of_an_earlier_version_is_resumed(backbone, finished, tmp_path):
    """Lines held one ``answer``, and ``correct`` instead of a score."""
    out = tmp_path / "earlier"
    shutil.copytree(finished, out)
    (out / "results.json").unlink()
    lines = []
    for line in written(finished)[:-3]:
        line["answer"], line["correct"] = line.pop("answers")[0], line.pop("score") == 1
        lines.append(json.dumps(line) + "\n")
    (out / "predictions.jsonl").write_text("".join(lines), encoding="utf-8")
    known = Ledger(out / "predictions.jsonl").of("full", "attribute")[0]
    assert known == Ledger(finished / "predictions.jsonl").of("full", "attribute")[0]
    run(backbone, out)
    for name in ("results.json", "predictions.jsonl", "config.json"):
        assert (out / name).read_bytes() == (finished / name).read_bytes()


def test_an_interruption_loses_nothing_and_nothing_is_asked_twice(
    backbone, finished, tmp_path, monkeypatch
):
    def stop(done, total):
        if done >= 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(backbone, tmp_path, watch=stop)
    assert len(words(tmp_path)) >= 9
    asked = []
    answers = module.Answerer.answers

    def counted(self, items, runs, **options):
        asked.extend(items if runs else [])
        return answers(self, items, runs, **options)

    monkeypatch.setattr(module.Answerer, "answers", counted)
    seen = []
    run(backbone, tmp_path, watch=lambda done, total: seen.append((done, total)))
    assert (tmp_path / "results.json").read_bytes() == (finished / "results.json").read_bytes()
    assert 0 < len(asked) < 2 * LIMIT
    assert seen[0][0] >= 9
    assert seen[-1] == (30, 30)
    asked.clear()
    run(backbone, tmp_path)
    assert asked == []


def test_a_folder_gains_plans_and_keeps_what_it_has(backbone, finished, tmp_path):
    out = tmp_path / "more"
    run(backbone, out, [])
    assert len(words(out)) == 2 * LIMIT
    run(backbone, out, PLANS[:1])
    run(backbone, out, PLANS[1:])
    for name in ("results.json", "predictions.jsonl", "config.json"):
        assert (out / name).read_bytes() == (finished / name).read_bytes()


def test_a_run_that_was_never_finished_is_kept_but_not_scored(backbone, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "out")
    lines = (finished / "predictions.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out" / "predictions.jsonl").write_text("".join(lines[:-1]))
    results = run(backbone, tmp_path / "out", PLANS[:1])
    assert [row.name for row in results.rows] == ["full", PLANS[0]]
    assert len(words(tmp_path / "out")) == len(lines) - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "expected seed 0, found 1"),
        ({"limit": 6}, "expected limit 5, found 6"),
        ({"split": "validation"}, "expected split 'test', found 'validation'"),
        ({"task": "mini:attribute"}, "expected families"),
        ({"blank": True}, "expected blank False, found True"),
        (
            {"plans": {"fastv@16": eos.Plan.preset("tome", budget=16, num_layers=3)}},
            "found another",
        ),
    ],
)
def test_a_folder_does_not_mix(backbone, finished, change, message):
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    with pytest.raises(eos.ConfigError, match=message):
        run(backbone, finished, **change)
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_another_model_of_the_same_name_is_noticed(backbone, finished, sibling):
    other = eos.load_backbone(sibling)
    assert fingerprint(other.model) == fingerprint(backbone.model)
    other.model.lm_head.weight.data[0, 0] += 1
    with pytest.raises(eos.ConfigError, match="expected fingerprint"):
        run(other, finished)


def test_predictions_without_settings_and_changed_questions_are_refused(
    backbone, finished, tmp_path
):
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / "config.json").unlink()
    with pytest.raises(eos.ConfigError, match=r"expected a config\.json"):
        run(backbone, out)
    shutil.copy(finished / "config.json", out)
    lines = (finished / "predictions.jsonl").read_text().splitlines(keepends=True)
    first = json.loads(lines[0])
    lines[0] = json.dumps({**first, "answers": ["something"]}) + "\n"
    (out / "predictions.jsonl").write_text("".join([lines[0], *lines[2:]]))
    with pytest.raises(eos.DataError, match="the questions have changed"):
        run(backbone, out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 1}, "at least 2"),
        ({"batch_size": 0}, "batch size of at least 1"),
        ({"split": "tests"}, "expected a split among train, validation, test"),
        ({"plans": ["fastv"]}, r"as in fastv@64; found 'fastv'"),
        ({"plans": ["fastw@64"]}, "found 'fastw'"),
        ({"plans": ["fastv@many"]}, "found 'fastv@many'"),
        ({"plans": ["fastv@16", "fastv@16"]}, "found 'fastv@16' twice"),
        ({"plans": {"full": eos.Plan.preset("fastv", budget=16, num_layers=3)}}, "another name"),
        ({"plans": {"a": eos.Plan.preset("fastv", budget=16)}}, "'a' for 576 and 32"),
        ({"plans": ["missing.json"]}, "cannot read missing.json"),
    ],
)
def test_mistakes_are_explained_before_anything_is_written(backbone, tmp_path, options, message):
    with pytest.raises(eos.EosError, match=message):
        run(backbone, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_plans_from_files_have_names(backbone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = eos.Plan.preset("fastv", budget=16, num_layers=3)
    for name in ("mine.json", "found/plan.json"):
        plan.save(name)
    specs = ["mine.json", "found/plan.json", "other=found", "tome@9,4"]
    found = named_plans(specs, backbone, visual_tokens=576)
    assert list(found) == ["mine", "found", "other", "tome@9", "tome@4"]
    assert found["mine"].steps == plan.steps
    assert found["mine"].dims == backbone.dims


def test_a_blank_image_is_what_the_model_sees(backbone, tmp_path, monkeypatch):
    seen = []
    answers = module.Answerer.answers

    def noted(self, items, runs, **options):
        seen.extend(item.messages[0]["content"][0]["image"] for item in items)
        return answers(self, items, runs, **options)

    monkeypatch.setattr(module.Answerer, "answers", noted)
    run(backbone, tmp_path / "blank", [], blank=True, limit=2)
    assert all(len(image.getcolors()) == 1 for image in seen)
    seen.clear()
    run(backbone, tmp_path / "seen", [], limit=2)
    assert all(len(image.getcolors(96 * 96)) > 1 for image in seen)


def test_where_models_and_processors_are_found(backbone, sibling, tmp_path):
    assert locate("some/model") == "some/model"
    assert model_name(sibling) == model_name(backbone.model) == "sibling"
    assert model_name("llava-hf/llava-1.5-7b-hf") == "llava-hf/llava-1.5-7b-hf"
    assert model_name("miniature") == "miniature"
    with pytest.raises(eos.BackboneError, match="folder with a processor"):
        load_processor(tmp_path)
    made = new_model(miniature_config(width=32, layers=1, vision_layers=2), seed=0)
    assert model_name(made) == "llava"
    with pytest.raises(eos.BackboneError, match="made in memory"):
        load_processor(made)


def test_the_tables_say_everything(finished, capsys):
    results = eos.Results.load(finished / "results.json")
    text = markdown(results)
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    assert rows == [
        "run",
        "---",
        "*chance*",
        "`full`",
        *(f"`{p}`" for p in PLANS),
        "run",
        "---",
    ] + [f"`{p}`" for p in PLANS]
    widths = {line.count("|") for line in text.splitlines()[:6]}
    assert len(widths) == 1
    show_evaluation(results, width=150)
    shown = capsys.readouterr().out
    for part in ("not comparable to public benchmarks", "n = 5 questions", "seed 0"):
        assert part in text.replace("\n", " ")
        assert part in shown.replace("\n", " ").replace("  ", " ")
    for name in ("attribute", "followup", "prior", "extended", "fastv@16", "95%"):
        assert name in text
        assert name in shown
