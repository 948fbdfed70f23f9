"""Complaint 14: `eos doctor` says what a machine can do."""

import json
import shutil

import torch

import eos
from eos import cli
from eos.commands.options import Attention
from eos.runs import diagnosis
from eos.runs.diagnosis import run_probe, try_half_precision

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def test_14_the_doctor_reports_and_exits_with_0(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["eos"] == eos.__version__
    assert found["packages"]["torch"] == torch.__version__
    assert found["devices"][0]["name"] == "cpu"
    assert set(found["attention"]) == {choice.value for choice in Attention}
    assert set(found["cpu_half_precision"]) == {"bfloat16", "float16"}
    assert all(x.startswith(("works", "fails")) for x in found["cpu_half_precision"].values())
    assert 0 < found["memory"]["free"] <= found["memory"]["total"]
    assert found["disk"]["total"] == shutil.disk_usage(".").total


def test_14_the_table_says_the_same(capsys, monkeypatch):
    monkeypatch.setattr(diagnosis, "try_half_precision", lambda dtype: f"fails: {dtype}")
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for words in ("torch", "device cpu", "attention sdpa", "fails: float16", "free disk", "GiB"):
        assert words in shown


def test_14_a_probe_that_dies_ends_its_own_process_only():
    assert run_probe("pass") == "works"
    assert run_probe(DIES) == "fails: SIGILL"
    assert run_probe("raise SystemExit(3)") == "fails: exit code 3"
    assert run_probe("raise ValueError('no such type')") == "fails: ValueError: no such type"


def test_14_a_remedy_is_named_only_if_it_helps(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    helped = f"import os\nif 'ONEDNN_MAX_CPU_ISA' not in os.environ:\n    {DIES}"
    monkeypatch.setattr(diagnosis, "PROBE", helped)
    found = try_half_precision("bfloat16")
    assert found.startswith("fails: SIGILL; works with ONEDNN_MAX_CPU_ISA=")
    monkeypatch.setattr(diagnosis, "PROBE", DIES)
    assert try_half_precision("bfloat16") == "fails: SIGILL; use --dtype float32"
    monkeypatch.setattr(diagnosis, "PROBE", "pass  # {dtype}")
    assert try_half_precision("bfloat16") == "works"
