"""docs/gpu.md: its commands are understood; `python -m tests.test_gpu_docs` prints its figures."""

import re
from pathlib import Path

import click
import pytest
from typer.main import get_command

from eos.cli import app
from eos.evaluation.forecast import DEVICE, search_forecast, table_forecast
from eos.evaluation.paper_tables import paper_tables, read_table
from eos.searching.files import read_config

PAGE = (Path(__file__).parent.parent / "docs" / "gpu.md").read_text(encoding="utf-8")
FENCED = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
BLOCKS = "\n".join(text for language, text in FENCED if not language)
COMMANDS = [
    line.split() for line in re.findall(r"^(?:.* -m )?eos (.*)", BLOCKS, flags=re.MULTILINE)
]
MAKES = re.findall(r"^make paper(.*)", BLOCKS, flags=re.MULTILINE)
MAKEFILE = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")


def parse(words):
    """Parse a command as the command line does, without running it."""
    group = get_command(app)
    with click.Context(group) as context:
        name, command, rest = group.resolve_command(context, words)
        while isinstance(command, click.Group):
            name, command, rest = command.resolve_command(context, rest)
        return command.make_context(name, rest, parent=context).params


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_is_understood(words):
    if words[0] == "data":
        pytest.importorskip("eos.commands.data")
    words = words[: words.index("#")] if "#" in words else words
    found = parse(words)
    if words[0] == "search":
        source, *changes = found["arguments"]
        assert read_config(source, changes)
    if words[0] == "paper":
        assert all(read_table(name) for name in found["arguments"])


def test_a_command_with_a_mistake_is_noticed():
    assert len(COMMANDS) > 12
    with pytest.raises(Exception, match="--dato"):  # typer has exceptions of its own
        parse(["paper", "--dato", "hub"])


def test_make_knows_every_variable_on_the_page():
    assert len(MAKES) >= 4
    for name in re.findall(r"\b([A-Z]+)=", " ".join(MAKES)):
        assert f"$({name})" in MAKEFILE


def table_rows():
    for name in paper_tables():
        table = read_table(name)
        cells = (
            f"`{table.label}` | {len(table.rows)} | {len(table.tasks)} | {table_forecast(table)}"
        )
        yield f"| `eos paper {name}` | {cells} |"


def test_the_figures_are_computed():
    assert set(table_rows()) <= set(PAGE.splitlines())
    expected = search_forecast(read_config("paper-llava-1.5-7b"))
    assert f"({expected} on one {DEVICE})" in PAGE


if __name__ == "__main__":
    print(
        *table_rows(),
        search_forecast(read_config("paper-llava-1.5-7b")),
        sep="\n",
    )
