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

PLAN, FAMILY, COUNT = "fastv@64", "presence", 6
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
doc_to_choice: ["yes", "no"]
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
        (folder / f"{name}.yaml").write_text(text.format(file=folder / "test.parquet"))
    (folder / "functions.py").write_text(FUNCTIONS)
    return folder


def harness(tasks, task, out, *more, plan=PLAN, batch="4"):
    """Run the real command line; give the scores and the samples it writes."""
    model = "pretrained=miniature" + (f",plan={plan}" if plan else "")
    command = [sys.executable, "-m", "lmms_eval", "--model", "eos", "--model_args", model]
    command += ["--tasks", task, "--include_path", str(tasks), "--batch_size", batch]
    command += ["--device", "cpu", "--log_samples", "--output_path", str(out), *more]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    offline["HF_HOME"] = str(tasks / "cache")
    done = subprocess.run(
        command, env={**os.environ, **offline}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (scores,) = Path(out).rglob("*_results.json")
    (samples,) = Path(out).rglob(f"*_samples_{task}.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    found = json.loads(scores.read_text())["results"][task]
    return found, {line["doc_id"]: line["filtered_resps"] for line in lines}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """What `eos eval` finds on the same questions."""
    out = tmp_path_factory.mktemp("ours")
    return eos.evaluate("miniature", [PLAN], out=out, task=f"mini:{FAMILY}", limit=COUNT), out


@pytest.mark.parametrize("more", [(), ("--force_simple",)])
def test_it_answers_what_eos_eval_answers(tasks, ours, tmp_path, more):
    scores, answers = harness(tasks, "eos_generated", tmp_path, *more)
    results, out = ours
    lines = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    expected = {line["number"]: line["prediction"] for line in lines if line["run"] == PLAN}
    assert answers == expected
    assert 100 * scores["right,none"] == pytest.approx(results.row(PLAN).average.accuracy)


def test_another_batch_changes_nothing_and_another_plan_does(tasks, tmp_path):
    """One request at a time; and, the control, a plan that keeps one token."""
    _, batched = harness(tasks, "eos_generated", tmp_path / "batched", plan=None)
    _, alone = harness(tasks, "eos_generated", tmp_path / "alone", plan=None, batch="1")
    assert alone == batched
    _, blind = harness(tasks, "eos_generated", tmp_path / "blind", plan="random@1")
    assert blind != batched


def test_choices_are_scored_by_their_loss(tasks, tmp_path):
    scores, losses = harness(tasks, "eos_chosen", tmp_path, "--force_simple")
    assert len(losses) == COUNT
    assert scores["acc,none"] >= 0.5
