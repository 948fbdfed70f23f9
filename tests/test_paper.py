"""The paper's tables on real checkpoints: configurations, forecasts, and the whole way in small.

`python -m tests.test_paper` rewrites the forecasts in the configurations' headers.
"""

import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from eos import ConfigError, Plan, Step
from eos.cli import main
from eos.commands.paper import read_arguments, search_configs
from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.forecast import TOWER_WEIGHTS, WEIGHTS, search_forecast, table_forecast
from eos.evaluation.overall import Overall
from eos.evaluation.paper_tables import (
    PLACEMENTS,
    PaperTable,
    all_searches,
    paper_tables,
    read_table,
)
from eos.models import random_llava
from eos.searching.files import configs, read_config
from tests.benchmark_folders import build

SEARCH = "paper-llava-1.5-7b"
LINE = re.compile(r"^# Expected on one A100-80GB.*?: (.*)\.$", flags=re.MULTILINE)
FILES = {**paper_tables(), SEARCH: configs()[SEARCH]}


def forecast(name):
    found = (
        search_forecast(read_config(name)) if name == SEARCH else table_forecast(read_table(name))
    )
    return str(found)


@pytest.mark.parametrize("name", FILES)
def test_the_header_has_the_forecast_and_the_command(name):
    text = FILES[name].read_text(encoding="utf-8")
    assert LINE.findall(text) == [forecast(name)]
    assert f"eos {'search' if name == SEARCH else 'paper'} {name}" in text


def test_a_forecast_follows_the_work():
    table = read_table("main")
    whole = table_forecast(table)
    fewer = table_forecast(table.model_copy(update={"tasks": ("pope",)}))
    share = BENCHMARKS["pope"].size / sum(x.size for x in BENCHMARKS.values())
    assert fewer.seconds == pytest.approx(share * whole.seconds)
    assert fewer.bytes == whole.bytes > 2 * WEIGHTS
    smaller = table_forecast(table.model_copy(update={"batch_size": 1}))
    assert smaller.bytes < whole.bytes
    config = read_config(SEARCH)
    longer, leaner = (config.model_copy(update=x) for x in ({"steps": 8000}, {"recompute": True}))
    assert search_forecast(longer).seconds > 1.9 * search_forecast(config).seconds
    assert search_forecast(leaner).bytes < search_forecast(config).bytes


def test_forecasts_count_the_weights_of_the_model():
    sizes = random_llava.SIZES["7b"]
    config = random_llava._config(sizes, None, vision=random_llava.CLIP_LARGE)
    with torch.device("meta"):
        model = random_llava._empty(config, torch.float16, "sdpa")
    tower = sum(x.numel() for x in model.model.vision_tower.parameters())
    found = (sum(x.numel() for x in model.parameters()), tower)
    assert found == (WEIGHTS, TOWER_WEIGHTS)


def test_the_tables_are_the_papers():
    main_table = read_table("main")
    assert main_table.tasks == tuple(BENCHMARKS)
    assert len(main_table.rows) == 1 + 4 * 5
    assert read_table("placement").rows[1] == "searched@16"
    assert main(["validate", str(paper_tables()["low"])]) == 0
    needed = all_searches(read_table(name) for name in paper_tables())
    assert set(needed) == {"searched", "searched-fixed-layers"}
    assert search_configs({"low": read_table("low")}, ["steps=7"])["searched"].steps == 7


def test_mistakes_in_a_table_are_all_named():
    good = read_table("placement").model_dump(by_alias=True)
    with pytest.raises(ConfigError, match=r"(?s)tasks: .*'popes'.*plans: .*'fast'"):
        PaperTable(**{**good, "tasks": ["popes"], "plans": ["fast"]})
    with pytest.raises(ConfigError, match="did you mean 'main'"):
        read_table("mian")
    other = PaperTable(**{**good, "backbone": "miniature"})
    with pytest.raises(ConfigError, match=r"expected the search 'searched' as in"):
        all_searches([other, PaperTable(**{**good, "searches": {"searched": ["miniature"]}})])


def test_tables_of_two_models_are_not_mixed(tmp_path):
    path = tmp_path / "mine.yaml"
    text = paper_tables()["low"].read_text(encoding="utf-8")
    path.write_text(text.replace("llava-hf/llava-1.5-7b-hf", "miniature"))
    assert list(read_arguments([str(path), "steps=1"])[0]) == ["mine"]
    with pytest.raises(ConfigError, match="expected tables of one model"):
        read_arguments([str(path), "low"])


def layers_and_counts(plan):
    return [(step.layer, step.keep) for step in plan.steps]


def test_placements_move_steps_as_the_papers_table_does():
    steps = [Step(layer=3, keep=200), Step(layer=6, keep=60), Step(layer=16, keep=16)]
    plan = Plan(visual_tokens=576, num_layers=32, steps=steps)
    found = {name: layers_and_counts(move(plan)) for name, move in PLACEMENTS.items()}
    assert found == {
        "middle-2": [(3, 200), (4, 60), (16, 16)],
        "middle+2": [(3, 200), (8, 60), (16, 16)],
        "default-layers": [(2, 200), (6, 60), (15, 16)],
        "without-middle": [(3, 200), (16, 16)],
    }
    near = Plan(visual_tokens=576, num_layers=7, steps=[Step(layer=5, keep=9), steps[1]][:1])
    assert all(move(near).expected.final_tokens == 9 for move in PLACEMENTS.values())


def test_what_is_missing_is_named_before_anything_runs(tmp_path, capsys):
    (tmp_path / "pope").mkdir()
    asked = ["paper", "--data", str(tmp_path), "--mix", "gone.json", "--images", "gone"]
    assert main([*asked, "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    if not torch.accelerator.is_available():
        assert "expected a GPU that torch sees" in said
    assert "conversations to search on at gone.json" in said
    assert "their images at gone" in said
    assert all(f"{tmp_path / name} with" in said for name in BENCHMARKS if name != "pope")
    assert f"{tmp_path / 'pope'} with" not in said
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Benchmarks, and conversations to search on, as on a machine with a GPU; four of each."""
    root = tmp_path_factory.mktemp("paper")
    build(root / "benchmarks")
    samples = []
    for number in range(8):
        Image.new("RGB", (96, 96), (31 * number, 90, 40)).save(root / f"{number}.png")
        said = [{"from": "human", "value": "<image>\nis there a red circle ?"}]
        said.append({"from": "gpt", "value": "yes" if number % 2 else "no"})
        samples.append({"id": str(number), "image": f"{number}.png", "conversations": said})
    (root / "mix.json").write_text(json.dumps(samples))
    return root


def test_the_whole_way_from_search_to_twelve_columns(folders, sibling, capsys):
    asked = ["paper", "reproduce", "main", "placement", "--data", str(folders / "benchmarks")]
    asked += ["--mix", str(folders / "mix.json"), "--images", str(folders), "--device", "cpu"]
    asked += ["--backbone", str(sibling), "--limit", "4", "--quiet", "--out", str(folders / "run")]
    asked += ["steps=1", "batch=1", "validation.samples=1"]
    assert main(asked) == 0
    found = Overall.load(folders / "run" / "main.json")
    assert list(found.questions) == list(BENCHMARKS)
    assert [row.name for row in found.rows] == read_table("main").rows
    assert all(row.average is not None for row in found.rows)
    assert {row.cost.final_tokens for row in found.rows} == {576, 192, 128, 64, 16}
    text = (folders / "run" / "main.md").read_text(encoding="utf-8")
    assert all(f" {x.title} |" in text for x in BENCHMARKS.values())
    assert len(Overall.load(folders / "run" / "placement.json").rows) == 6
    answers = (folders / "run" / "answers" / "pope" / "predictions.jsonl").read_bytes()
    capsys.readouterr()
    assert main([*asked, "--json"]) == 0  # resumes: nothing is answered again
    assert (folders / "run" / "answers" / "pope" / "predictions.jsonl").read_bytes() == answers
    assert list(json.loads(capsys.readouterr().out)) == ["reproduce", "main", "placement"]


if __name__ == "__main__":
    for name, path in FILES.items():
        text = Path(path).read_text(encoding="utf-8")
        path.write_text(LINE.sub(lambda m: m[0].replace(m[1], forecast(name)), text))  # noqa: B023
        print(name, forecast(name))
