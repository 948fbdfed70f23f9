"""Files of JSON lines that survive a kill, and the check that a folder belongs to the same run."""

import json

import pytest

from eos import ConfigError, DataError
from eos.runs.identity import check_same
from eos.runs.journal import Journal


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "deep" / "lines.jsonl")
    for turn in range(3):
        made.append(turn, {"word": "nö"})
    made.flush()
    return made


def test_lines_are_written_by_flush_alone_and_in_order(journal):
    assert journal.path.read_text() == "".join(
        f'{{"turn": {turn}, "word": "n\\u00f6"}}\n' for turn in range(3)
    )
    journal.add('{"plain": "nö"}')
    assert len(list(journal.entries())) == 3
    journal.flush()
    journal.flush()
    assert list(journal.entries())[3:] == [{"plain": "nö"}]


def test_a_torn_line_is_cut_at_every_byte_and_reading_changes_nothing(journal):
    data = journal.path.read_bytes()
    line = len(data) // 3
    for size in range(len(data) + 1):
        journal.path.write_bytes(data[:size])
        assert len(list(journal.entries())) == size // line
        assert journal.path.read_bytes() == data[:size]
        assert len(journal.cut()) == size // line
        assert journal.path.read_bytes() == data[: size // line * line]


def test_rewinding_drops_later_turns_and_what_is_no_entry(journal):
    data = journal.path.read_bytes()
    with journal.path.open("ab") as file:
        file.write(b'[1]\nnonsense\n{"turn": "1"}\n{"turn": 1, "to')
    assert journal.rewind(2) == [0, 1]
    assert journal.path.read_bytes() == b"".join(data.splitlines(keepends=True)[:2])
    assert journal.rewind(0) == []
    assert journal.path.read_bytes() == b""
    assert Journal(journal.path.with_name("none")).rewind(5) == []


def test_a_broken_line_is_named_and_a_full_disk_is_explained(journal, tmp_path):
    data = journal.path.read_bytes()
    journal.path.write_bytes(b'{"turn"\n' + data)
    with pytest.raises(DataError, match="line 1: expected a JSON object"):
        list(journal.entries())
    (tmp_path / "file").touch()
    blocked = Journal(tmp_path / "file" / "lines.jsonl", ["{}\n"])
    with pytest.raises(ConfigError, match=r"cannot write .*rerun to resume"):
        blocked.flush()


def test_all_differences_are_named_at_once(tmp_path):
    before = json.loads('{"seed": 0, "limit": [5], "other": 1}')
    check_same(tmp_path, before, {"seed": 0, "limit": [5]}, what="search")
    with pytest.raises(ConfigError) as failure:
        check_same(tmp_path, before, {"seed": 1, "limit": [5], "new": 3}, what="search")
    message = str(failure.value)
    assert f"{tmp_path} holds another search: 2 problems:" in message
    assert "1. expected seed 0, found 1" in message
    assert "2. expected new None, found 3" in message
    with pytest.raises(ConfigError, match="holds another search: a plan differs"):
        check_same(tmp_path, before, {"seed": 0}, what="search", problems=["a plan differs"])
