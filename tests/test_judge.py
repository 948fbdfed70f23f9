"""The judge: what a disagreement is, that it is measured once, and what that costs."""

import json
from random import Random

import pytest
import torch
from torch.nn.functional import log_softmax

import eos
from eos import ConfigError, Plan, Step
from eos.data.batches import Reader
from eos.data.settings import WorldData
from eos.data.sources import open_source
from eos.engine.search_pass import labelled_pass
from eos.models.processor import load_processor, place_batch
from eos.runs.journal import Journal
from eos.runs.processes import Processes
from eos.searching import judge as judge_module
from eos.searching.focus import drawn, focused, inclusion
from eos.searching.judge import Judge, disagreement
from eos.searching.race import Entrant, race, rungs

TOKENS, LAYERS = 576, 3


@pytest.fixture(scope="module")
def made(sibling):
    backbone = eos.load_backbone(sibling)
    source = open_source(WorldData(families=("presence", "string"), size=50))
    return backbone, Reader(source, load_processor(sibling), "last")


def judge(made, path=None, facts=None):
    backbone, reader = made
    journal = None if path is None else Journal(path)
    batch = reader.first(6, at_once=2)
    return Judge(backbone, reader, batch, Processes(), 16, journal, facts or {"backbone": "a"})


def plan(backbone, *steps):
    sizes = {"visual_tokens": TOKENS, "num_layers": LAYERS, "dims": backbone.dims}
    found = [Step(layer=layer, keep=keep, score=score) for layer, keep, score in steps]
    return Plan(**sizes, text_tokens=16, steps=tuple(found))


@pytest.fixture(scope="module")
def plans(made):
    backbone, _ = made
    single = [plan(backbone, (layer, keep, "diversity")) for layer in (0, 1) for keep in (99, 9)]
    return [*single, plan(backbone, (-1, 99, "dissimilarity"), (1, 5, "all-text"))]


def test_the_full_model_agrees_with_itself_and_others_do_not(made, plans):
    own = judge(made)
    found = own.disagreement([plan(made[0]), *plans], own.pieces)
    assert found.shape == (6, 6)
    assert found[0].abs().max() < 1e-5
    assert (found[1:].mean(dim=1) > 1e-5).all()
    assert found.max() < 1


def test_a_disagreement_is_one_minus_exp_of_the_divergence(made, plans):
    backbone, reader = made
    inputs, labels = place_batch(backbone.model, reader.inputs(reader.first(2, at_once=2).answered))
    outputs = [
        labelled_pass(backbone, x, inputs=inputs, labels=labels) for x in (plan(backbone), plans[1])
    ]
    full, reduced = (log_softmax(x.answers, dim=-1) for x in outputs)
    each = torch.nn.functional.kl_div(reduced, full, log_target=True, reduction="none").sum(-1)
    lengths = (labels != -100).sum(dim=1).tolist()
    expected = [1 - torch.exp(-part.sum()) for part in each.split(lengths)]
    found = disagreement(reduced, full, labels=labels)
    assert found.tolist() == pytest.approx([float(x) for x in expected], abs=1e-6)
    measured = judge(made).disagreement([plans[1]], [0])[0]
    assert measured.tolist() == pytest.approx(found.tolist(), abs=2e-6)


def test_together_or_alone_the_values_are_the_same(made, plans):
    together = judge(made).disagreement(plans, [0, 1])  # the prefix is shared
    alone = torch.cat([judge(made).disagreement([x], [0, 1]) for x in plans])
    assert torch.allclose(together, alone, atol=2e-6)


def test_what_the_journal_holds_is_not_measured_again(made, plans, tmp_path, monkeypatch):
    first = judge(made, tmp_path / "trials.jsonl")
    found = first.disagreement(plans, [0, 1])
    text = (tmp_path / "trials.jsonl").read_text()
    (tmp_path / "trials.jsonl").write_text(text + '{"turn": 9, "plan": "torn')
    second = judge(made, tmp_path / "trials.jsonl")

    def fail(*args, **kwargs):
        raise AssertionError("measured again")

    monkeypatch.setattr(judge_module, "labelled_pass", fail)
    assert torch.equal(second.disagreement(plans, [0, 1]), found)
    assert second.passes == first.passes  # compute counts as if it had been spent
    with pytest.raises(AssertionError, match="measured again"):
        second.disagreement(plans, [2])
    assert (tmp_path / "trials.jsonl").read_text() == text


def test_measurements_of_something_else_are_refused(made, plans, tmp_path):
    judge(made, tmp_path / "trials.jsonl").disagreement(plans[:1], [0])
    with pytest.raises(ConfigError, match="expected backbone 'a', found 'b'"):
        judge(made, tmp_path / "trials.jsonl", facts={"backbone": "b"})


def test_compute_is_counted_in_full_passes(made, plans):
    own = judge(made)
    own.disagreement(plans[:1], [0])
    # two samples, each through the full model and through the plan's share of it
    assert own.passes / 2 - 1 == pytest.approx(plans[0].expected.flops_ratio, abs=1e-6)
    before, mark = own.passes, own.mark()
    own.disagreement(plans[:1], [0])
    assert own.passes == before  # remembered: free
    own.disagreement(plans[1:2], [0])
    assert own.passes > before
    own.restart(mark)
    assert own.passes == before


def test_a_race_ends_with_the_best_on_all_pieces(made, plans):
    own = judge(made)
    everything = own.disagreement(plans, own.pieces).mean(dim=1)
    entrants = race(own, [*plans, plans[0]], rounds=rungs(3, first=3))
    assert [x.mean for x in entrants] == sorted(everything.tolist())
    assert entrants[0].plan == plans[int(everything.argmin())]
    halved = race(judge(made), plans, rounds=[1, 2, 3], last=2)
    assert len(halved) == 2
    assert all(len(x.values) == 6 for x in halved)


def test_who_is_certainly_worse_leaves_the_race(made, plans):
    own = judge(made)
    values = own.disagreement(plans, own.pieces)
    best = Entrant(plans[0], torch.full_like(values[0], -1.0) + 0.01 * torch.arange(6))
    assert race(judge(made), plans, rounds=[1, 3], held=best) == []
    worst = Entrant(plans[0], torch.full_like(values[0], 2.0))
    assert len(race(judge(made), plans, rounds=[3], held=worst)) == len(plans)


def test_the_journal_names_plans_and_pieces(made, plans, tmp_path):
    judge(made, tmp_path / "trials.jsonl").disagreement(plans[:2], [1])
    first, *entries = map(json.loads, (tmp_path / "trials.jsonl").read_text().splitlines())
    assert first["facts"] == {"backbone": "a"}
    assert [entry["piece"] for entry in entries] == [1, 1]
    assert json.loads(entries[0]["plan"]) == [{"keep": 99, "layer": 0, "score": "diversity"}]
    assert all(len(entry["values"]) == 2 for entry in entries)


def test_a_focused_judge_estimates_the_mean_of_the_pool(made, plans, tmp_path):
    own = judge(made)
    few = focused(own, plans[:2], pieces=3, share=0.3, path=tmp_path / "few.jsonl", seed=1)
    assert len(few.pieces) == 1
    assert few.passes == own.passes > 0  # what choosing them took is counted, too
    chosen = [own.batch.answered.index(x) for x in few.batch.answered]
    plain = own.disagreement(plans, own.pieces)[:, chosen]
    found = few.disagreement(plans, few.pieces)
    assert torch.allclose(found, plain * few.weights, atol=1e-4)
    with pytest.raises(ConfigError, match="samples"):  # the journal of other samples is refused
        focused(own, plans[2:], pieces=2, share=0.3, path=tmp_path / "few.jsonl", seed=1)
    whole = focused(
        judge(made), plans[:2], pieces=3, share=1.0, path=tmp_path / "all.jsonl", seed=1
    )
    assert whole.passes == 0
    assert torch.equal(whole.disagreement(plans, whole.pieces), own.disagreement(plans, own.pieces))


def test_samples_that_one_plan_finds_hard_do_not_decide_against_it():
    """Drawn by the doubts of one plan, both plans' means are right; cut there, they are not."""
    chance = torch.Generator().manual_seed(0)
    hard = torch.rand(300, generator=chance)
    first = (hard < 0.2).double() * 0.9  # fails on a fifth of the samples
    second = (torch.rand(300, generator=chance) < 0.3).double() * 0.9  # fails more, elsewhere
    chances = inclusion(first, 100)
    assert float(chances.sum()) == pytest.approx(100)
    assert float(chances.max()) <= 1
    means = torch.zeros(2, dtype=torch.float64)
    for seed in range(400):
        chosen = drawn(chances, Random(seed))
        assert len(set(chosen)) == 100
        weights = 100 / 300 / chances[chosen]
        means += torch.stack([(x[chosen] * weights).mean() for x in (first, second)]) / 400
    truth = torch.stack([first.mean(), second.mean()])
    assert torch.allclose(means, truth, atol=0.01)
    cut = first.argsort(descending=True, stable=True)[:100]
    assert first[cut].mean() > second[cut].mean() + 0.1  # the control: the better plan loses


def test_no_plans_have_no_disagreement(made, plans, tmp_path):
    own = judge(made)
    few = focused(own, plans[:2], pieces=3, share=0.3, path=tmp_path / "few.jsonl", seed=1)
    assert few.disagreement([], few.pieces).shape == (0, 2)
    assert own.disagreement([], own.pieces).shape == (0, 6)
