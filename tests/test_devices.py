"""A backbone whose weights are elsewhere: offloaded, as ``device_map`` does it, or sharded."""

import os
import re
import subprocess
import sys

import accelerate
import pytest
import torch

import eos
from eos.data.batches import Reader
from eos.data.settings import WorldData
from eos.data.sources import open_source
from eos.engine.relaxation import RelaxedTheta
from eos.models.devices import device_of
from eos.models.families import FAMILIES
from eos.models.processor import fingerprint, load_processor, place_inputs
from eos.searching.gradients import search_losses


@pytest.fixture(scope="module")
def batch(sibling):
    reader = Reader(open_source(WorldData(split="validation")), load_processor(sibling), "last")
    return reader.inputs(reader.first(2, at_once=2).answered)


@pytest.fixture(scope="module")
def offloaded(sibling, tmp_path_factory):
    model = eos.load_backbone(sibling).model
    accelerate.disk_offload(model, str(tmp_path_factory.mktemp("disk")), execution_device="cpu")
    assert all(weight.is_meta for weight in model.parameters())
    return eos.load_backbone(model)


def test_it_computes_where_it_is_told(offloaded, sibling):
    assert device_of(offloaded.model) == torch.device("cpu")
    assert fingerprint(offloaded.model) == fingerprint(eos.load_backbone(sibling).model)
    with torch.no_grad():
        other = eos.load_backbone(sibling)
        other.layers[2].mlp.down_proj.weight.mul_(2)
    assert fingerprint(offloaded.model) != fingerprint(other.model)  # the control


def test_it_is_searched_as_if_it_were_here(offloaded, sibling, batch):
    def found(backbone):
        theta = eos.Theta(3, visual_tokens=576)
        inputs = place_inputs(backbone.model, batch[0])
        given = {"inputs": inputs, "labels": batch[1], "objective": eos.Objective()}
        losses = search_losses(backbone, RelaxedTheta(theta), budget=64, **given)
        losses.total.backward()
        assert all(weight.grad.abs().sum() > 0 for weight in theta.weights.values())
        return [losses.total, *(weight.grad for weight in theta.weights.values())]

    for here, away in zip(found(eos.load_backbone(sibling)), found(offloaded), strict=True):
        assert torch.equal(here, away)


def test_it_answers_under_a_plan_as_if_it_were_here(offloaded, sibling, batch):
    plan = eos.Plan(visual_tokens=576, num_layers=3, steps=[eos.Step(layer=1, keep=40)])

    def answers(backbone):
        with eos.reduced(backbone, plan) as model:
            inputs = place_inputs(model, batch[0])
            return model.generate(**inputs, max_new_tokens=4, do_sample=False)

    assert torch.equal(answers(offloaded), answers(eos.load_backbone(sibling)))


def test_every_family_is_the_same_in_shards():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    told = subprocess.run(
        [*command, "--nproc-per-node", "2", "-m", "tests.shards"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    away = {
        (kind, who): float(far) for kind, who, far in re.findall(r"(\w+) (\w+): (\S+) aw", told)
    }
    assert sorted(away) == sorted((k, who) for k in FAMILIES for who in ("0", "1", "control"))
    assert told.count("holds 0.5") == 2 * len(FAMILIES)
    assert all((far > 0.1) if who == "control" else (far < 1e-6) for (_, who), far in away.items())
