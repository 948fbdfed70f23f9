"""Data flows one way: a package imports only from those before it in ORDER."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "eos"
# `methods` precedes `space`, since plans name what methods define; `runs` and `config` are what
# files need.
ORDER = [
    "version",
    "errors",
    "runs",
    "config",
    "estimates",
    "sizes",
    "tokens",
    "tables",
    "models",
    "operator",
    "methods",
    "space",
    "engine",
    "miniature",
    "data",
    "searching",
    "evaluation",
    "programme",
    "report",
    "commands",
    "cli",
    "__main__",
    "testing",  # last: nothing imports it
]
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def package(path):
    """The first part of a module's name inside eos: a package, or a file beside them."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_modules(tree):
    """The modules of eos that a syntax tree imports from, at any depth of nesting."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            names = [node.module] if node.module != "eos" else [f"eos.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        modules |= {name for name in names if name.startswith("eos.")}
    return modules


def violations(tree, home):
    allowed = ORDER[: ORDER.index(home) + 1]
    return {name.split(".")[1] for name in imported_modules(tree)} - set(allowed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_from_earlier_packages(path):
    assert package(path) in ORDER
    assert violations(ast.parse(path.read_text(encoding="utf-8")), package(path)) == set()


@pytest.mark.parametrize(
    "line",
    [
        "from eos.cli import main",
        "import eos.cli",
        "from eos import cli",
        "def f():\n from eos.cli import x",
    ],
)
def test_an_import_from_a_later_package_is_noticed(line):
    assert violations(ast.parse(line), "space") == {"cli"}


def test_models_know_nothing_of_scoring_and_reduction():
    used = {}
    for path in FILES:
        names = imported_modules(ast.parse(path.read_text(encoding="utf-8")))
        used.setdefault(package(path), set()).update(name.split(".")[1] for name in names)
    assert used["models"] <= {"errors", "runs", "config", "sizes", "tokens", "models"}
    assert {"models", "operator"} <= used["engine"]  # the control: where both meet


def test_only_what_makes_or_runs_models_may_import_transformers():
    for path in FILES:
        if package(path) in ("models", "miniature", "testing"):
            continue
        if path in (SOURCE / "engine" / "reduced.py", SOURCE / "engine" / "decoding.py"):
            continue
        imports = [
            n
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, (ast.Import, ast.ImportFrom))
        ]
        names = {getattr(n, "module", None) or n.names[0].name for n in imports}
        assert not any(name.split(".")[0] == "transformers" for name in names)


def test_only_training_imports_what_trains_the_miniature():
    training = SOURCE / "miniature" / "training"
    users = {
        path.parent
        for path in FILES
        for name in imported_modules(ast.parse(path.read_text(encoding="utf-8")))
        if name.startswith("eos.miniature.training")
    }
    assert users == {training}
