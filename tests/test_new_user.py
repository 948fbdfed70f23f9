"""What a demanding new user meets, numbered as in CHANGELOG.md: each of these failed once."""

import json
import subprocess
import sys

import pytest
import torch
from transformers.utils import is_flash_attn_2_available

import eos
from eos import ConfigError, DataError, Plan, PlanError, cli
from eos.commands.bench import default_plans
from eos.data.settings import WorldData
from eos.searching.files import read_config
from eos.testing.tiny import tiny_backbone, tiny_inputs
from tests.test_loop import searched


@pytest.fixture(scope="module")
def run(sibling, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    searched(eos.load_backbone(sibling), out)
    return out


def failed(capsys, *arguments, code=1):
    assert cli.main([*map(str, arguments)]) == code
    return capsys.readouterr()


def test_2_a_backbone_has_one_text_length(run):
    assert eos.SearchConfig().fitted_to(eos.load_backbone("miniature")).objective.text_length == 16
    assert Plan.load(run / "plan.json").text_tokens == 64  # of any other model
    assert eos.Objective(text_tokens=7).text_length == 7


def test_2_options_that_cannot_apply_are_refused(run, capsys):
    found = failed(capsys, "plan", run, "--text", "16").err
    assert "--text with a preset only; found text_tokens=16" in found
    assert "with a preset only" in failed(capsys, "plan", "eos-miniature@64", "--layers", "32").err
    assert cli.main(["plan", "fastv@64", "--layers", "12", "--text", "16"]) == 0
    assert "(with 16 text tokens)" in capsys.readouterr().out


def test_4_a_finished_search_keeps_its_environment(sibling, run):
    before = {"threads": -1}
    (run / "env.json").write_text(json.dumps(before))
    searched(eos.load_backbone(sibling), run)
    assert json.loads((run / "env.json").read_text()) == before


def test_4_one_batch_has_no_standard_error(capsys, tmp_path, sibling):
    given = ["--backbone", sibling, "--samples", "2", "--batch-size", "2", "--out", tmp_path]
    assert "two batches at least" in failed(capsys, "fidelity", *given).err


def test_5_presets_say_that_depths_are_rescaled(capsys):
    assert cli.main(["ls", "presets"]) == 0
    assert "32 layers" in capsys.readouterr().out
    note = "layers: published for 32, at the same share of 12 here"
    assert note in str(Plan.preset("fastv", budget=64, num_layers=12))
    assert note not in str(Plan.preset("fastv", budget=64))


def test_7_defaults_of_the_benchmark_fit_a_small_model():
    assert default_plans(576)[0] == "fastv@192,128,64,16"
    assert default_plans(36)[0] == "fastv@16"
    assert default_plans(9)[0] == "fastv@4"


@pytest.mark.parametrize("name", ["llava-1.5-7b", "paper-llava-1.5-7b"])
def test_7_configurations_fit_models_of_any_depth(name):
    config = read_config(name)
    assert config.layers is None
    assert config.objective.align_layers is None


def test_8_an_interrupted_command_leaves_with_130(sibling, tmp_path):
    code = (
        "import os, signal, sys\n"
        "import eos.searching.search as module\n"
        "from eos import cli\n"
        "def interrupted(run):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    raise KeyboardInterrupt\n"
        "module.descend = interrupted\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    given = ["search", "paper-miniature", f"backbone={sibling}", "--out", str(tmp_path / "x")]
    done = subprocess.run(
        [sys.executable, "-c", code, *given], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert "Rerun the same command to resume" in done.stderr


def test_9_values_on_the_command_line_are_blamed_for_themselves():
    with pytest.raises(ConfigError, match=r"^stepz=5: stepz: unknown key; did you mean 'steps'"):
        read_config(None, ["stepz=5"])
    with pytest.raises(ConfigError, match=r"data.file: unknown key; it belongs to data.kind=llava"):
        read_config(None, ["data.file=mix.json"])


def test_9_the_order_of_values_does_not_matter():
    given = ["data.file=mix.json", "data.images=here", "data.kind=llava"]
    found = [read_config(None, order).data for order in (given, given[::-1])]
    assert found[0] == found[1] == eos.LlavaData(file="mix.json", images="here")


def test_9_errors_are_ours(run):
    with pytest.raises(ConfigError, match=r"gamma: .* 1, found 2"):
        eos.Operator(gamma=2)
    backbone = tiny_backbone("llava")
    with pytest.raises(eos.BackboneError, match="found str"), eos.reduced("llava", "fastv@64"):
        pass
    with (
        pytest.raises(PlanError, match=r"found dict. A file is read by"),
        eos.reduced(backbone, {}),
    ):
        pass
    for data in ([1, 2, 3], {"file": "mix.json"}):
        with pytest.raises(DataError, match=f"found {type(data).__name__}"):
            eos.search(backbone, data)


@pytest.mark.skipif(is_flash_attn_2_available(), reason="the kernel is installed")
def test_9_a_kernel_that_is_not_installed_is_named(capsys, tmp_path):
    kernel = ["--attention", "flash_attention_2"]
    assert "cannot use flash_attention_2" in failed(capsys, "bench", "--size", "tiny", *kernel).err
    assert "cannot load" in failed(capsys, "eval", "--out", tmp_path / "x", *kernel).err


def test_9_with_json_an_error_is_json_too(capsys):
    found = failed(capsys, "validate", "missing.json", "--json")
    assert json.loads(found.out)["kind"] == "ConfigError"
    assert "preset" not in found.err


def test_9_plans_may_be_given_as_they_are(sibling, tmp_path):
    backbone = eos.load_backbone(sibling)
    plan = Plan.preset("fastv", budget=64, model=backbone)
    questions = {"task": "mini:digit", "limit": 2}
    found = eos.evaluate(backbone, [plan], out=tmp_path / "a", **questions)
    assert [row.name for row in found.rows] == ["full", "plan@64"]
    found = eos.evaluate(backbone, "fastv@64", out=tmp_path / "b", **questions)
    assert [row.name for row in found.rows] == ["full", "fastv@64"]
    with pytest.raises(ConfigError, match="found int"):
        eos.evaluate(backbone, [64], out=tmp_path / "c", **questions)


def test_10_a_plain_model_is_reduced_and_left_as_it_was():
    backbone = tiny_backbone("llava")
    model, inputs = backbone.model, tiny_inputs(backbone)
    plan = Plan.preset("fastv", budget=9, model=model)
    assert (plan.num_layers, plan.dims) == (backbone.num_layers, backbone.dims)
    model.requires_grad_(True).train()
    with torch.no_grad(), eos.reduced(model, plan) as inside:
        found = inside(**inputs).logits
        assert not model.training
    assert model.training
    assert all(weight.requires_grad for weight in model.parameters())
    model.requires_grad_(False).eval()
    with eos.reduced(backbone, "fastv@9") as inside:
        assert torch.equal(inside(**inputs).logits, found)
    with pytest.raises(ConfigError, match="expected one plan"), eos.reduced(model, "fastv@9,4"):
        pass


def test_13_settings_are_values_too(run):
    objective = eos.Objective(max_layers=2)
    assert eos.SearchConfig(objective=objective).objective == objective
    assert eos.SearchConfig.load(run / "config.yaml").budget == 64
    (run / "torn.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        eos.SearchConfig.load(run / "torn.yaml")


def test_13_data_settings_say_what_is_wrong():
    with pytest.raises(ConfigError, match="split: "):
        WorldData(split="nowhere")


def test_14_short_help_and_completion(capsys):
    assert cli.main(["search", "-h"]) == 0
    assert "--out" in capsys.readouterr().out
    assert cli.main(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out


def test_a_picture_of_ones_own_is_answered_by_the_full_and_the_reduced_model(capsys, tmp_path):
    from eos.miniature.world import example

    sample = example("test", "digit", 0)
    sample.image.save(tmp_path / "picture.png")
    given = [
        str(tmp_path / "picture.png"),
        sample.question.text,
        "--plan",
        "eos-miniature@64,16",
        "--json",
    ]
    assert cli.main(["ask", *given]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == ["full", "eos-miniature@64", "eos-miniature@16"]
    assert [row["final_tokens"] for row in rows] == [576, 64, 16]
    assert {row["answer"] for row in rows} == {sample.question.answer}
    (tmp_path / "text.png").write_text("no picture")
    assert "expected a picture" in failed(capsys, "ask", tmp_path / "text.png", "what ?").err
