"""The latency bench, on a model of milliseconds: what is run and counted, never how fast it was."""

import json
from collections import Counter

import pytest
import torch

from eos.commands.validate import validate_file
from eos.errors import BackboneError, ConfigError, PlanError
from eos.evaluation.latency import FULL, LatencyReport, measure, runs
from eos.models import random_llava as building
from eos.models.random_llava import plain_prefill, random_llava, random_prompt, visual_tokens
from eos.report.latency import show_latency
from eos.space.plan import Operator, Plan, Step
from eos.testing.tiny import tiny_backbone

TOKENS, LAYERS, TEXT = 36, 4, 10
QUICK = {"text_tokens": TEXT, "repeats": 2, "decode_tokens": 2}


@pytest.fixture(scope="module")
def backbone():
    return random_llava("tiny")


def plan(*steps, **changes):
    return Plan(**{"visual_tokens": TOKENS, "num_layers": LAYERS, "steps": steps, **changes})


PLANS = {
    "early": plan(Step(layer=1, keep=9, score="last-query")),
    "pyramid": plan(Step(layer=0, keep=20), Step(layer=2, keep=5)),
    "hybrid": plan(Step(layer=1, keep=6, operator=Operator(gamma=0.08, tau=0.22, theta=0.1))),
    "before": plan(Step(layer=-1, keep=12, score="dissimilarity")),
    "reindexed": plan(Step(layer=1, keep=7, positions="reindex")),
}


@pytest.fixture(scope="module")
def report(backbone):
    return measure(backbone, PLANS, **QUICK)


def test_the_full_model_comes_first_and_every_plan_has_a_row(report):
    assert [row.name for row in report.rows] == [FULL, *PLANS]
    assert report.rows[0].speedup == 1.0
    for row in report.rows:
        timed = {"prefill_ms", "decode_ms", "bound_ms", "kv_bytes"}
        assert set(row.samples) == (timed if row.name == FULL else timed | {"overhead"})
        assert all(len(values) == QUICK["repeats"] for values in row.samples.values())
        assert row.prefill_ms > 0
        assert 0 <= row.overhead < 1


def test_costs_are_counted_for_this_model_and_text(report, backbone):
    for row in report.rows[1:]:
        asked = PLANS[row.name].model_copy(update={"dims": backbone.dims, "text_tokens": TEXT})
        assert row.final_tokens == asked.expected.final_tokens
        assert row.mean_tokens == pytest.approx(asked.expected.mean_tokens, abs=1e-4)
        assert row.flops_ratio == pytest.approx(asked.expected.flops_ratio, abs=1e-6)
        assert row.kv_ratio == pytest.approx(asked.expected.kv_bytes_ratio, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_cache_is_as_large_as_predicted(dtype):
    found = measure(random_llava("tiny", dtype=dtype), PLANS, batch=2, **QUICK)
    assert all(row.kv_exact for row in found.rows)
    whole = 2 * LAYERS * (TOKENS + TEXT) * 64 * dtype.itemsize  # keys and values
    assert found.rows[0].kv_bytes == 2 * whole  # of two samples


def test_a_wrong_prediction_is_noticed(backbone, monkeypatch):
    right = PLANS["early"].schedule
    wrong = property(lambda self: [*right[:-2], right[-2] - 1, right[-1]])
    monkeypatch.setattr(Plan, "schedule", wrong)
    full, row = measure(backbone, {"early": PLANS["early"]}, **QUICK).rows
    assert full.kv_exact
    assert not row.kv_exact
    assert row.kv_bytes - row.kv_bytes_expected == 2 * 64 * 4  # one token of one layer


def test_a_plan_and_its_bound_run_at_the_same_lengths(backbone, monkeypatch):
    seen, forward = [], type(backbone.layers[0].self_attn).forward

    def record(self, hidden_states, *args, **kwargs):
        seen.append(hidden_states.shape[1])
        return forward(self, hidden_states, *args, **kwargs)

    monkeypatch.setattr(type(backbone.layers[0].self_attn), "forward", record)
    measure(backbone, {"pyramid": PLANS["pyramid"]}, text_tokens=TEXT, repeats=1, decode_tokens=1)
    calls = Counter(zip(*(seen[layer::LAYERS] for layer in range(LAYERS)), strict=True))
    rounds = 2
    assert calls == {
        (46, 30, 30, 15): 3 * rounds,  # prefill, bound, and the pass that times our share
        (46, 46, 46, 46): 2 * rounds,
        (1, 1, 1, 1): 2 * rounds,
    }


def test_the_bound_at_full_length_is_the_model(backbone):
    prompt = random_prompt(backbone, text_tokens=TEXT)
    ids, features = prompt["input_ids"], prompt["mm_encoder_outputs"]["image"].pooler_output[0]
    with torch.no_grad():
        states = backbone.decoder.embed_tokens(ids)
        states[ids == backbone.model.config.image_token_id] = features
        ours = plain_prefill(backbone, states, lengths=[TOKENS + TEXT] * LAYERS)
        theirs = backbone.model(**prompt, logits_to_keep=1).logits
    torch.testing.assert_close(ours, theirs)


def test_the_report_is_an_artifact(report, tmp_path):
    path = tmp_path / "latency.json"
    report.save(path)
    assert LatencyReport.load(path) == report
    assert validate_file(path) == "eos.latency/1"
    data = json.loads(path.read_text(encoding="utf-8"))
    assert [row["kv_exact"] for row in data["rows"]] == [True] * len(report.rows)
    path.write_text(json.dumps({**data, "thread": 1}), encoding="utf-8")
    with pytest.raises(ConfigError, match="did you mean 'threads'"):
        validate_file(path)


def test_the_report_is_printed(report, capsys):
    show_latency(report, width=160)
    printed = capsys.readouterr().out
    assert all(name in printed for name in PLANS)
    assert f"torch {torch.__version__}" in printed


def test_it_ticks_as_often_as_it_says(backbone):
    plans, ticks = {"early": PLANS["early"]}, []
    measure(backbone, plans, tick=lambda: ticks.append(1), **QUICK)
    assert len(ticks) == runs(plans, QUICK["repeats"])


def test_nothing_is_left_on_the_model(backbone):
    measure(backbone, {"early": PLANS["early"]}, **QUICK)
    assert not any(module._forward_pre_hooks for module in backbone.model.modules())


@pytest.mark.parametrize(
    ("plans", "changes", "error", "sentence"),
    [
        ({FULL: PLANS["early"]}, {}, PlanError, "another name"),
        ({"deep": plan(num_layers=5)}, {}, PlanError, "'deep' for 36 and 5"),
        ({"wide": plan(visual_tokens=18)}, {}, PlanError, "'wide' for 18 and 4"),
        ({}, {"repeats": 0}, ConfigError, "found 0 and 2"),
        ({}, {"decode_tokens": 0}, ConfigError, "found 2 and 0"),
        ({}, {"text_tokens": 1}, ConfigError, "at least 2 text tokens"),
        ({}, {"batch": 0}, ConfigError, "a batch of 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(backbone, plans, changes, error, sentence):
    with pytest.raises(error, match=sentence):
        measure(backbone, plans, **{**QUICK, **changes})


def test_other_families_are_refused():
    with pytest.raises(BackboneError, match="type llava"):
        visual_tokens(tiny_backbone("qwen2_vl"))


def test_an_unknown_size_is_refused():
    with pytest.raises(ConfigError, match="tiny, small, 7b; found '13b'"):
        random_llava("13b")


def test_7b_is_refused_before_memory_runs_out(monkeypatch):
    monkeypatch.setattr(building, "available_memory", lambda: 20 * 2**30)
    with pytest.raises(ConfigError, match=r"27\.\d GiB .* found 20\.0 GiB. Choose bfloat16"):
        random_llava("7b")


def test_memory_is_checked_for_weights_of_the_dtype(monkeypatch):
    needed = building.HEADROOM * sum(p.nbytes for p in random_llava("tiny").model.parameters())
    monkeypatch.setattr(building, "available_memory", lambda: int(0.6 * needed))
    random_llava("tiny", dtype=torch.float16)
    with pytest.raises(ConfigError, match="in float32"):
        random_llava("tiny")


def test_available_memory_is_a_number_of_bytes():
    assert building.available_memory() > 2**20


def test_weights_are_random_finite_and_repeatable():
    first, again = (random_llava("tiny").model.state_dict() for _ in range(2))
    other = random_llava("tiny", seed=1).model.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(bool(value.isfinite().all()) for value in first.values())
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
    assert not torch.equal(
        first["lm_head.weight"], first["model.language_model.embed_tokens.weight"]
    )
