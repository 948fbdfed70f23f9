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


def test_files_have_the_mode_of_the_umask_and_a_kill_leaves_no_second_file(tmp_path):
    path, before = tmp_path / "plan.json", os.umask(0o027)
    try:
        (tmp_path / ".plan.json.tmp").write_text("half of a fi")  # as a kill would leave it
        write_atomically(path, "new")
    finally:
        os.umask(before)
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["plan.json"]
    write_atomically(tmp_path / "other.json", "new")
    assert (tmp_path / "other.json").stat().st_mode & 0o777 == 0o666 & ~before
