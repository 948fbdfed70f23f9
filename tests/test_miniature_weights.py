"""The packaged miniature sees: it answers from its tokens, and not without them."""

from pathlib import Path

import pytest
import torch
from transformers import AutoProcessor, LlavaForConditionalGeneration, LlavaProcessor

import eos
from eos.evaluation.answering import Answerer, blanked
from eos.evaluation.tasks import find_task
from eos.miniature.model import miniature_config
from eos.models.processor import locate

ASKED = ("presence", "attribute", "chart")
EACH = 24


@pytest.fixture(scope="module")
def answerer():
    backbone = eos.load_backbone("miniature")
    return Answerer(backbone, AutoProcessor.from_pretrained(backbone.model.name_or_path))


@pytest.fixture(scope="module")
def right(answerer):
    """Share of right answers: of the full model, blind, and with few tokens left by chance."""
    task = find_task("mini")
    drop = eos.Plan.preset(
        "random", budget=4, num_layers=answerer.backbone.num_layers, dims=answerer.backbone.dims
    )
    found = {"full": [], "blind": [], "random@4": []}
    for family in ASKED:
        items = [task.item("validation", family, number=n, seed=5) for n in range(EACH)]
        runs = {"full": None, "random@4": drop}
        told = dict(answerer.answers(items, runs, max_new_tokens=2))
        grey = [blanked(item) for item in items]
        [(_, told["blind"])] = answerer.answers(grey, {"full": None}, max_new_tokens=2)
        for run, texts in told.items():
            found[run] += [task.metric(t, i.answers) for t, i in zip(texts, items, strict=True)]
    return {run: sum(hits) / len(hits) for run, hits in found.items()}


def test_it_answers_what_it_sees(right):
    assert right["full"] >= 0.8


def test_it_does_not_answer_what_it_does_not_see(right):
    assert right["blind"] < 0.6
    assert right["random@4"] < right["full"] - 0.15


def test_the_package_holds_a_small_llava_as_it_is_described(answerer):
    model, described = answerer.backbone.model, miniature_config()
    assert type(model) is LlavaForConditionalGeneration
    assert isinstance(answerer.processor, LlavaProcessor)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.config.text_config.num_hidden_layers == described.text_config.num_hidden_layers
    assert 3e6 < sum(p.numel() for p in model.parameters()) < 5e6
    files = [path for path in Path(locate("miniature")).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 10 * 2**20
