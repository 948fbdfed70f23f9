"""Complaint 14: docs/cli.md is the commands' help; `python -m tests.test_cli_docs` rewrites it."""

import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.models import ArgumentInfo, OptionInfo

from eos import cli
from eos.commands.keys import cells, search_keys

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "cli.md"
INTRODUCTION = """\
# The command line

Every command with its arguments and options, generated from the commands by
`python -m tests.test_cli_docs`. Results go to stdout, everything else to stderr. Exit codes: 0,
done; 1, a failure, with a sentence on stderr (and, with `--json`, as JSON on stdout); 2, a usage
error; 130, interrupted.
"""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a verb, as its annotation describes it."""

    name: str
    kind: type
    info: ArgumentInfo | OptionInfo
    default: object

    @property
    def names(self):
        """As typed; of an argument, how it is shown."""
        if isinstance(self.info, ArgumentInfo):
            return [self.info.metavar or self.name.upper()]
        # inside Annotated the first name stands where a default would
        given = [self.info.default, *(self.info.param_decls or ())]
        named = [name for name in given if isinstance(name, str) and name.startswith("-")]
        return named or [f"--{self.name.replace('_', '-')}"]

    @property
    def meant(self):
        """What it means, on one line."""
        return " ".join((self.info.help or "").split())


def parameters(verb):
    """Read a verb's signature."""
    hints = get_type_hints(verb, include_extras=True)
    for name, parameter in inspect.signature(verb).parameters.items():
        kind, info = get_args(hints[name])
        yield Parameter(name, kind, info, parameter.default)


def text_of(docstring):
    """A docstring as paragraphs of one line each."""
    return [" ".join(part.split()) for part in (docstring or "").strip().split("\n\n")]


def cell(text):
    return text.replace("|", "\\|")


def value_of(parameter):
    """What a value looks like: choices, a kind; nothing for a switch."""
    kinds = [kind for kind in get_args(parameter.kind) if kind is not NoneType]
    kind = kinds[0] if kinds else parameter.kind
    if get_origin(kind) is list or get_origin(parameter.kind) is list:
        return "text, repeatable"
    if kind is bool:
        return ""
    if issubclass(kind, Enum):
        return " or ".join(f"`{choice.value}`" for choice in kind)
    return {str: "text", int: "integer", float: "number", Path: "path"}[kind]


def default_of(parameter):
    value = parameter.default
    if value is inspect.Parameter.empty:
        return "required"
    if value is None or value is False:
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


def row_of(option):
    """A row of a table of options."""
    names = ", ".join(f"`{name}`" for name in option.names)
    return f"| {names} | {value_of(option)} | {default_of(option)} | {cell(option.meant)} |"


def section_of(name, verb):
    """The lines about one verb."""
    found = list(parameters(verb))
    arguments = [x for x in found if isinstance(x.info, ArgumentInfo)]
    shown = "".join(f"{argument.names[0]} " for argument in arguments)
    yield f"\n## `eos {name}`\n\n```\neos {name} {shown}[OPTIONS]\n```\n"
    yield "\n\n".join(text_of(verb.__doc__))
    for argument in arguments:
        yield f"\n`{argument.names[0]}`: {argument.meant}"
    yield "\n| option | value | default | meaning |\n|---|---|---|---|"
    yield from (row_of(x) for x in found if isinstance(x.info, OptionInfo))
    if name == "search":
        yield "\n| key of the configuration, with its default | meaning |\n|---|---|"
        for entry in search_keys():
            key, meant = map(cell, cells(entry))
            yield f"| `{key}` | {meant} |"


def page():
    """The whole page."""
    lines = [INTRODUCTION, "| command | what it does |", "|---|---|"]
    for name, verb in cli.VERBS.items():
        lines.append(
            f"| [`eos {name}`](#eos-{name.replace(' ', '-')}) | {text_of(verb.__doc__)[0]} |"
        )
    for name, verb in cli.VERBS.items():
        lines += section_of(name, verb)
    return "\n".join(lines) + "\n"


def test_14_the_page_is_what_the_commands_say():
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", cli.VERBS)
def test_14_every_option_that_a_command_takes_is_on_the_page(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main([*name.split(), "--help"]) == 0
    taken = set(re.findall(r"^│ \*?\s*(--[\w-]+)", capsys.readouterr().out, flags=re.MULTILINE))
    section = "\n".join(section_of(name, cli.VERBS[name]))
    assert taken - {"--help"} == set(re.findall(r"`(--[\w-]+)` \|", section))
    assert all(parameter.meant for parameter in parameters(cli.VERBS[name]))


def test_14_what_changes_in_a_command_changes_the_page(monkeypatch):
    def plan(another: Annotated[int, typer.Option(help="Something | else.")] = 3) -> None:
        """Do something."""

    before = page()
    monkeypatch.setitem(cli.VERBS, "plan", plan)
    assert page() != before
    assert "| `--another` | integer | `3` | Something \\| else. |" in page()


def test_14_the_page_is_made_without_torch():
    code = "import sys, tests.test_cli_docs as t; t.page(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_14_the_readme_leads_to_the_page():
    assert "(docs/cli.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
