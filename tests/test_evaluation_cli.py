"""`eos eval` as a person or a script meets it."""

import json

import pytest

import eos
from eos import cli
from eos.evaluation import evaluate as module


def ask(sibling, out, *options):
    command = ["eval", "--backbone", str(sibling), "--out", str(out), "--limit", "3"]
    return cli.main([*command, "--tasks", "mini:presence,string", *options])


def test_a_table_of_presets_and_budgets(sibling, tmp_path, capsys):
    out, document = tmp_path / "out", tmp_path / "docs" / "table.md"
    assert ask(sibling, out, "--plan", "fastv@16,9", "--markdown", str(document)) == 0
    captured = capsys.readouterr()
    assert "fastv@16" in captured.out
    assert "presence" in captured.out
    assert "saved" in captured.err
    assert document.read_text(encoding="utf-8").count("`fastv@9`") == 2
    assert ask(sibling, out, "--plan", "fastv@16,9", "--json") == 0
    found = capsys.readouterr().out
    assert found == (out / "results.json").read_text(encoding="utf-8")
    assert [row["name"] for row in json.loads(found)["rows"]] == ["full", "fastv@16", "fastv@9"]
    for name in ("results.json", "config.json"):
        assert cli.main(["validate", str(out / name)]) == 0


def test_mistakes_exit_with_1_and_usage_errors_with_2(sibling, tmp_path, capsys):
    assert ask(sibling, tmp_path / "out", "--tasks", "mini:presense") == 1
    assert "did you mean 'presence'?" in capsys.readouterr().err
    for spec in ("fastv", "fastv@", "fastv@64,"):
        assert ask(sibling, tmp_path / "out", "--plan", spec) == 1
        assert "as in fastv@64" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert cli.main(["eval", "--backbone", str(sibling)]) == 2
    assert "--out" in capsys.readouterr().err
    assert ask(sibling, tmp_path / "out", "--limit", "few") == 2


def test_control_c_says_how_to_resume(sibling, tmp_path, capsys, monkeypatch):
    append = module.Ledger.append

    def interrupted(self, predictions):
        append(self, predictions)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.Ledger, "append", interrupted)
        assert ask(sibling, tmp_path) == 130
    message = capsys.readouterr().err
    assert "Rerun the same command to resume" in message
    assert "Traceback" not in message
    assert ask(sibling, tmp_path, "--json") == 0
    again = eos.Results.load(tmp_path / "results.json")
    assert ask(sibling, tmp_path / "other", "--json") == 0
    assert eos.Results.load(tmp_path / "other" / "results.json") == again


def test_the_same_folder_with_another_seed_is_refused(sibling, tmp_path, capsys):
    assert ask(sibling, tmp_path) == 0
    assert ask(sibling, tmp_path, "--seed", "1") == 1
    assert "expected seed 0, found 1" in capsys.readouterr().err


def test_tasks_are_listed(capsys):
    assert cli.main(["ls", "tasks", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "presence" in found["tasks"]["mini"]


@pytest.mark.parametrize("command", [["eval", "--help"]])
def test_help_names_every_option(command, capsys):
    assert cli.main(command) == 0
    shown = capsys.readouterr().out
    for option in ("--plan", "--tasks", "--limit", "--blank", "--markdown", "--json"):
        assert option in shown
