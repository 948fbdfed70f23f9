"""Data flows one way: a file imports only from its left in the order of ORDER."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "eos"
# `operator` and `methods` precede `space`: plans name scorers and operators, and read presets.
ORDER = [
    "version",
    "errors",
    "tokens",
    "runs",
    "config",
    "operator",
    "methods",
    "space",
    "models",
    "testing",
    "engine",
    "miniature",
    "data",
    "searching",
    "evaluation",
    "report",
    "commands",
    "cli",
    "__main__",
]
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def room(path):
    """The first part of a module's name inside eos."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_rooms(tree):
    """The rooms of eos that a syntax tree imports from, at any depth of nesting."""
    rooms = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            names = [node.module] if node.module != "eos" else [f"eos.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("eos.")}
    return rooms


def violations(tree, home):
    allowed = ORDER[: ORDER.index(home) + 1]
    return {name for name in imported_rooms(tree) if name not in allowed}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_from_its_left(path):
    assert room(path) in ORDER
    assert violations(ast.parse(path.read_text(encoding="utf-8")), room(path)) == set()


@pytest.mark.parametrize(
    "line",
    [
        "from eos.cli import main",
        "import eos.cli",
        "from eos import cli",
        "def f():\n from eos.cli import x",
    ],
)
def test_an_import_from_the_right_is_noticed(line):
    assert violations(ast.parse(line), "space") == {"cli"}


def test_only_what_makes_or_runs_models_may_import_transformers():
    for path in FILES:
        if room(path) in ("models", "testing", "miniature") or path.stem == "reduced":
            continue
        imports = [
            n
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, (ast.Import, ast.ImportFrom))
        ]
        names = {getattr(n, "module", None) or n.names[0].name for n in imports}
        assert not any(name.split(".")[0] == "transformers" for name in names)
