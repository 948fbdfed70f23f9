"""The command line as a person or a script meets it."""

import json
import subprocess
import sys

import pytest

import eos
from eos import cli
from eos.evaluation import verify


def test_help_and_version(capsys):
    assert cli.main(["--help"]) == 0
    assert "verify" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"eos {eos.__version__}\n"


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["verify", "--help"]])
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
