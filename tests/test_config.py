"""Writing files: all or nothing."""

import os

import pytest

from eos import ConfigError
from eos.runs.files import write_atomically


def test_folders_are_made_and_nothing_else_is_left(tmp_path):
    write_atomically(tmp_path / "a" / "b.json", "new")
    assert (tmp_path / "a" / "b.json").read_text() == "new"
    assert os.listdir(tmp_path / "a") == ["b.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    path.write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"cannot write .*plan.json: No space left.*unchanged"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_path_that_is_a_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        write_atomically(tmp_path, "new")
