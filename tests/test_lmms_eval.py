"""The model `eos` in lmms-eval's own command line, on a small task of local pictures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset, Features, Image, Value

import eos
from eos.evaluation.tasks import TASKS

pytest.importorskip("lmms_eval", reason="lmms_eval is not installed: docs/harness.md says how")

PLAN, FAMILY, COUNT = "fastv@64", "digit", 6
CHOICES = [str(digit) for digit in range(10)]
GENERATED = """
task: eos_generated
dataset_path: parquet
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_visual: !function functions.images
doc_to_text: !function functions.text
doc_to_target: answer
generation_kwargs: {{max_new_tokens: 2, temperature: 0, do_sample: false, num_beams: 1}}
process_results: !function functions.results
metric_list: [{{metric: right, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 0.0}}
"""
CHOSEN = """
task: eos_chosen
dataset_path: parquet
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_visual: !function functions.images
doc_to_text: !function functions.text
doc_to_target: answer
doc_to_choice: {choices}
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 0.0}}
"""
FUNCTIONS = """
def images(doc):
    return [doc["image"].convert("RGB")]

def text(doc, lmms_eval_specific_kwargs=None):
    return doc["question"]

def results(doc, results):
    return {"right": float(results[0].strip() == doc["answer"])}
"""
SCORED = """
import json, sys
from lmms_eval.models import get_model
from lmms_eval.tasks import TaskManager, get_task_dict
given = {"batch_size": 4, "device": "cpu"}
named = f"pretrained=miniature,plan={sys.argv[2]}"
model = get_model("eos", True).create_from_arg_string(named, given)
tasks = TaskManager(include_path=sys.argv[1], model_name="eos")
task = get_task_dict(["eos_chosen"], tasks, "simple")["eos_chosen"]
model.task_dict["eos_chosen"] = task.dataset
task.build_all_requests(rank=0, world_size=1)
found = zip(task.instances, model.loglikelihood(task.instances), strict=True)
print(json.dumps([[x.doc_id, x.args[1], *scored] for x, scored in found]))
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder of tasks on questions of the miniature's world."""
    folder = tmp_path_factory.mktemp("tasks")
    rows = []
    for number in range(COUNT):
        item = TASKS["mini"].item("test", FAMILY, number=number, seed=0)
        image, text = item.messages[-1]["content"]
        rows.append({"image": image["image"], "question": text["text"], "answer": item.answers[0]})
    kinds = Features({"image": Image(), "question": Value("string"), "answer": Value("string")})
    Dataset.from_list(rows, features=kinds).to_parquet(folder / "test.parquet")
    for name, text in [("generated", GENERATED), ("chosen", CHOSEN)]:
        (folder / f"{name}.yaml").write_text(
            text.format(file=folder / "test.parquet", choices=CHOICES)
        )
    (folder / "functions.py").write_text(FUNCTIONS)
    return folder


def offline(tasks):
    """Settings that keep every library off the network."""
    names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE")
    return {**dict.fromkeys(names, "1"), "HF_HOME": str(tasks / "cache")}


def harness(tasks, task, out, *more, plan=PLAN, batch="4"):
    """Run the real command line; give the scores and the samples it writes."""
    model = "pretrained=miniature" + (f",plan={plan}" if plan else "")
    command = [sys.executable, "-m", "lmms_eval", "--model", "eos", "--model_args", model]
    command += ["--tasks", task, "--include_path", str(tasks), "--batch_size", batch]
    command += ["--device", "cpu", "--log_samples", "--output_path", str(out), *more]
    environment = {**os.environ, **offline(tasks)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    scores, samples = (
        next(Path(out).rglob(name), None) for name in ("*_results.json", f"*_samples_{task}.jsonl")
    )
    # it ends with 0 after an error, too
    assert None not in (scores, samples), done.stdout[-3000:] + done.stderr[-3000:]
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    found = json.loads(scores.read_text())["results"][task]
    return found, {line["doc_id"]: line["filtered_resps"] for line in lines}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """What `eos eval` finds on the same questions."""
    out = tmp_path_factory.mktemp("ours")
    return eos.evaluate("miniature", [PLAN], out=out, task=f"mini:{FAMILY}", limit=COUNT), out


@pytest.fixture(scope="module")
def expected(ours):
    lines = (ours[1] / "predictions.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return {line["number"]: line["prediction"] for line in found if line["run"] == PLAN}


@pytest.mark.parametrize(("more", "batch"), [((), "4"), (("--force_simple",), "1")])
def test_it_answers_what_eos_eval_answers(tasks, ours, expected, tmp_path, more, batch):
    scores, answers = harness(tasks, "eos_generated", tmp_path, *more, batch=batch)
    assert answers == expected
    assert 100 * scores["right,none"] == pytest.approx(ours[0].row(PLAN).average.accuracy)


def test_another_plan_answers_otherwise(tasks, expected, tmp_path):
    """The control: one visual token, drawn at random."""
    assert harness(tasks, "eos_generated", tmp_path, plan="random@1")[1] != expected


def test_choices_are_scored_by_their_loss(tasks, expected):
    """By its interface: the evaluator of 0.7.3 turns losses into text before its own metrics."""
    done = subprocess.run(
        [sys.executable, "-c", SCORED, str(tasks), PLAN],
        env={**os.environ, **offline(tasks)},
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == len(CHOICES) * COUNT
    for number, answer in expected.items():
        losses = {choice.strip(): loss for n, choice, loss, _ in found if n == number}
        greedy = {choice.strip() for n, choice, _, hit in found if n == number and hit}
        assert min(losses, key=losses.get) == answer
        assert greedy == {answer}
