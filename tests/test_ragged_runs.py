"""Search and evaluation on pictures of different sizes, in batches that hold several."""

import json

import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText

import eos
from eos import Plan, SearchConfig, Step
from eos.data.batches import Reader
from eos.data.settings import LlavaData
from eos.data.sources import open_source
from eos.evaluation.ledger import Ledger
from eos.runs.processes import Processes
from eos.searching.judge import Judge
from eos.searching.search import search as find
from eos.testing.tiny import CLIP, CONFIGS
from tests.test_data import tiles_processor

SIZES = [(20, 40), (40, 20), (16, 16), (28, 40), (40, 40), (10, 40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Save a model of tiles with its processor, and questions about pictures of many sizes."""
    folder = tmp_path_factory.mktemp("tiles")
    processor = tiles_processor()
    settings = {**CONFIGS["llava_next"], "image_token_index": 2}
    settings["text_config"] = {**settings["text_config"], "eos_token_id": 1, "num_hidden_layers": 3}
    settings["vision_config"] = {**CLIP, "image_size": 16}
    settings["image_grid_pinpoints"] = [[16, 32], [32, 16], [32, 32]]
    torch.manual_seed(0)
    config = AutoConfig.for_model("llava_next", **settings)
    model = AutoModelForImageTextToText.from_config(config)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    talks = []
    for number, size in enumerate(SIZES):
        shades = torch.randint(255, (*size, 3), generator=torch.Generator().manual_seed(number))
        Image.fromarray(shades.byte().numpy()).save(folder / f"{number}.png")
        asked = f"<image>\nis this picture number {number} ?" + " or so ?" * (number % 3)
        turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": f"no {number}"}]
        talks.append({"id": str(number), "image": f"{number}.png", "conversations": turns})
    (folder / "talks.json").write_text(json.dumps(talks))
    return folder


@pytest.fixture(scope="module")
def backbone(folder):
    return eos.load_backbone(folder)


@pytest.fixture(scope="module")
def data(folder):
    return LlavaData(file=str(folder / "talks.json"), images=str(folder))


def plan(backbone, fraction=0.5):
    steps = [Step(layer=0, keep=round(100 * fraction)), Step(layer=1, keep=12, score="last-query")]
    return Plan(visual_tokens=100, num_layers=3, dims=backbone.dims, steps=steps)


def test_a_measurement_is_that_of_each_sample(backbone, folder, data):
    reader = Reader(open_source(data), eos.load_processor(folder), "last")
    inputs, _ = reader.inputs(reader.first(6, at_once=6).answered)
    assert len(backbone.visual_mask(inputs["input_ids"]).sum(dim=1).unique()) > 3
    found = {}
    for at_once in (1, 6):
        batch = reader.first(6, at_once=at_once)
        judge = Judge(backbone, reader, batch, Processes(), 16, None, {})
        plans = [plan(backbone), plan(backbone, 0.3)]
        found[at_once] = judge.disagreement(plans, judge.pieces)
    assert torch.allclose(found[1], found[6], atol=1e-4)
    assert not torch.allclose(found[6][0], found[6][1], atol=1e-4)  # the control: other fractions


def test_answers_do_not_depend_on_the_batch(backbone, data, tmp_path):
    plans = {"half": plan(backbone), "less": plan(backbone, 0.2)}
    said = {}
    for size in (1, 4):
        eos.evaluate(backbone, plans, data=data, out=tmp_path / str(size), batch_size=size)
        known = Ledger(tmp_path / str(size) / "predictions.jsonl").known
        said[size] = {
            (*pair, n): p.prediction for pair, own in known.items() for n, p in own.items()
        }
    assert said[1] == said[4]
    assert len(said[4]) == 3 * len(SIZES)


@pytest.mark.parametrize("method", ["eos", "paper"])
def test_a_search_reads_all_sizes_in_one_batch(backbone, data, tmp_path, method):
    small = {"batch": 3, "steps": 2, "lr": 0.05, "save_every": 2, "answers": "last", "data": data}
    small |= {"validation": {"samples": 3}, "budget": 8, "method": method, "warmup": 0.0}
    if method == "eos":
        small |= {"scorers": ("all-text", "dissimilarity")}
        few = {"profile_samples": 3, "paths": 1, "gradient_samples": 3, "confirm_samples": 3}
        small |= {"explore": few}
    answer = find(backbone, data, SearchConfig(**small), validation=data, out=tmp_path)
    assert answer.plan.expected.final_tokens == 8
