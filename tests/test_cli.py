"""The command line as a person or a script meets it."""

import json
import subprocess
import sys
from typing import get_args

import pytest
import torch
import typer

import eos
from eos import cli
from eos.commands.ls import LISTS
from eos.commands.options import Attention, Dtype, changes_of, load_chosen
from eos.commands.search import load_placed
from eos.evaluation import verify
from eos.models.random_llava import SIZES
from eos.runs.processes import Processes
from eos.searching.files import read_config
from eos.space.plan import BudgetKind


def test_help_and_version(capsys):
    assert cli.main(["--help"]) == 0
    assert "verify" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"eos {eos.__version__}\n"


@pytest.mark.parametrize(
    "command", [["--help"], ["--version"], *([*v.split(), "--help"] for v in cli.VERBS)]
)
def test_help_does_not_wait_for_torch(command):
    code = (
        f"import sys; from eos.cli import main; assert main({command}) == 0; "
        "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_usage_error_exits_with_2(capsys):
    assert cli.main(["verfy"]) == 2
    assert "Did you mean 'verify'?" in capsys.readouterr().err


def test_verify_prints_a_table(capsys):
    assert cli.main(["verify"]) == 0
    out = capsys.readouterr().out
    assert "Listing 3" in out
    assert "REWEIGHT" in out
    assert "of 2000 seeds" in out


def test_verify_as_json(capsys):
    assert cli.main(["verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is True
    assert [check["corner"] for check in found["listing"]] == ["prune", "merge", "pool", "reweight"]


def test_a_discrepancy_exits_with_1(monkeypatch, capsys):
    monkeypatch.setitem(verify.LISTING_TOLERANCE, "pool", 0.0)
    monkeypatch.setattr(verify, "SEEDS", range(1))
    assert cli.main(["verify"]) == 1
    assert "NOT verified" in capsys.readouterr().out


def test_an_error_of_ours_is_one_sentence_on_stderr(monkeypatch, capsys):
    def failing():
        raise eos.ConfigError("expected this, found that; do so")

    monkeypatch.setattr(verify, "verify", failing)
    assert cli.main(["verify"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "eos: expected this, found that; do so\n"


def test_every_public_name_is_there():
    for name in eos.__all__:
        assert getattr(eos, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = eos.missing


def test_a_plan_of_a_preset(capsys, tmp_path):
    out = tmp_path / "plans" / "plan.json"
    assert cli.main(["plan", "fastv", "--budget", "64", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert "64 final, 96.0 mean entering a layer, FLOPs x0.246, KV x0.250" in captured.out
    assert "saved" in captured.err
    assert eos.Plan.load(out) == eos.Plan.preset("fastv", budget=64)
    assert cli.main(["plan", str(out), "--budget", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["expected"]["final_tokens"] == 16


def test_a_plan_of_a_run(capsys, tmp_path):
    eos.Theta.start(12, visual_tokens=576, budget=64).save(tmp_path / "theta.json")
    assert cli.main(["plan", str(tmp_path), "--budget", "32"]) == 0
    assert "576 tokens, 12 layers -> 32 final" in capsys.readouterr().out
    # what the run found comes first: its own plan of that budget, else its plan, rescaled
    found = {b: eos.Plan.preset("fastv", budget=b, num_layers=12) for b in (64, 32)}
    found[64].save(tmp_path / "plan.json")
    for budget, layers in ((32, 12), (16, 12)):
        assert cli.main(["plan", str(tmp_path), "--budget", str(budget)]) == 0
        assert f"{layers} layers -> {budget} final" in capsys.readouterr().out
    own = found[32].model_copy(update={"num_layers": 11})
    own.save(tmp_path / "plan-32.json")
    assert cli.main(["plan", str(tmp_path), "--budget", "32"]) == 0
    assert "11 layers -> 32 final" in capsys.readouterr().out


def test_a_plan_by_name_and_budget(capsys):
    assert cli.main(["plan", "fastv@64"]) == 0
    first = capsys.readouterr().out
    assert cli.main(["plan", "fastv", "--budget", "64"]) == 0
    assert capsys.readouterr().out == first
    assert cli.main(["plan", "fastv@64", "--budget", "32"]) == 1
    assert "expected one budget" in capsys.readouterr().err
    assert cli.main(["plan", "fastv@64,32"]) == 0
    both = capsys.readouterr().out
    assert both.startswith(f"fastv@64\n{first}fastv@32\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "fastv"], "as in fastv@64; found 'fastv'"),
        (["plan", "fastw", "--budget", "64"], "found 'fastw'"),
        (["plan", "missing.json"], "cannot read missing.json"),
        (["plan", "fastv@64,32", "--json"], "expected one plan with --json or --out; found"),
        (["plan", "fastv", "--budget", "640"], "between 1 and 576 tokens, found 640"),
        (["validate", "missing.json"], "cannot read missing.json"),
    ],
)
def test_mistakes_are_explained(capsys, arguments, message):
    assert cli.main(arguments) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "choices"),
    [
        (["plan", "fastv@64", "--kind", "most"], get_args(BudgetKind)),
        (["ls", "things"], ["all", *LISTS]),
        (["bench", "--size", "huge"], SIZES),
        (["bench", "--dtype", "int8"], ["float32", "bfloat16", "float16"]),
        (["eval", "--out", "x", "--attention", "full"], ["sdpa", "eager", "flash_attention_2"]),
    ],
)
def test_an_unknown_choice_is_a_usage_error_that_names_the_known(capsys, arguments, choices):
    assert cli.main(arguments) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"is not one of {', '.join(map(repr, choices))}." in shown


RUNNING = ["search", "reproduce", "ablate", "profile", "fidelity", "eval", "bench"]
COMMON = ["--device", "--dtype", "--attention", "--batch-size", "--seed"]
COMMON += ["--out", "--quiet", "--json"]


def test_verbs_that_run_a_model_have_the_same_options():
    verbs = typer.main.get_command(cli.app).commands
    taken = {name: {x for p in verbs[name].params for x in p.opts} for name in verbs}
    for verb in RUNNING:
        assert set(COMMON) <= taken[verb], verb
    assert not set(COMMON) <= taken["plan"]  # the control


def test_options_are_short_for_values_of_a_configuration():
    changes = changes_of(device="cuda:1", batch_size=2, seed=7)
    config = read_config(None, changes)
    assert (config.device_map, config.micro_batch, config.seed) == ("cuda:1", 2, 7)
    assert changes_of(device=None, batch_size=None, seed=None) == []


def test_precision_and_attention_are_those_of_the_options(sibling):
    chosen = {"dtype": Dtype.float16, "attention": Attention.eager}
    config = read_config(None, [f"backbone={sibling}", "device_map=cpu"])
    for backbone in (
        load_chosen(str(sibling), device="cpu", **chosen),
        load_placed(config, Processes(), **chosen),
    ):
        assert backbone.model.dtype == torch.float16
        assert backbone.decoder.config._attn_implementation == "eager"
    default = load_placed(config, Processes())  # the control
    assert default.model.dtype == torch.float32
    assert default.decoder.config._attn_implementation == "sdpa"


def test_everything_is_listed(capsys):
    assert cli.main(["ls", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"backbones", "scorers", "presets", "tasks", "configs", "tables"}
    assert "arXiv 2403.06764" in found["presets"]["fastv"]
    assert cli.main(["ls", "presets"]) == 0
    assert "fastv" in capsys.readouterr().out


def test_files_are_validated(capsys, tmp_path):
    path = tmp_path / "plan.json"
    eos.Plan.preset("tome", budget=64).save(path)
    assert cli.main(["validate", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "eos.plan/1"
    path.write_text(path.read_text().replace('"keep": 64', '"keep": 640'))
    assert cli.main(["validate", str(path)]) == 1
    assert "found 640" in capsys.readouterr().err
    path.write_text('{"schema": "eos.chair/1"}')
    assert cli.main(["validate", str(path)]) == 1
    assert "found 'eos.chair/1'" in capsys.readouterr().err


def test_a_bench_of_a_tiny_model(capsys, tmp_path):
    eos.Plan.preset("fastv", budget=9, visual_tokens=36, num_layers=4).save(tmp_path / "mine.json")
    options = ["--size", "tiny", "--repeats", "1", "--out", str(tmp_path), "--device", "cpu"]
    options += ["--batch-size", "2", "--seed", "3", "--attention", "eager"]
    specs = [str(tmp_path / "mine.json"), "tome@9,6", f"same={tmp_path / 'mine.json'}"]
    assert cli.main(["bench", *options, *(x for spec in specs for x in ("--plan", spec))]) == 0
    assert "tome@9" in capsys.readouterr().out
    assert cli.main(["validate", str(tmp_path / "latency.json")]) == 0
    report = json.loads((tmp_path / "latency.json").read_text())
    names = ["full", "mine", "tome@9", "tome@6", "same"]
    assert [row["name"] for row in report["rows"]] == names
    assert all(row["kv_exact"] for row in report["rows"])
    assert (report["batch"], report["device"], report["dtype"]) == (2, "cpu", "float32")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--plan", "tome@many"], "as in fastv@64; found 'tome@many'"),
        (["--plan", "tome@9", "--plan", "tome@9,4"], "found 'tome@9' twice"),
        (["--plan", "tome@192"], "between 1 and 36 tokens, found 192"),
    ],
)
def test_a_bench_that_cannot_be_run_says_why(capsys, option, message):
    assert cli.main(["bench", "--size", "tiny", "--repeats", "1", *option]) == 1
    assert message in capsys.readouterr().err
