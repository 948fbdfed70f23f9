"""The tree in docs/architecture.md is the source, in the order of imports; its names exist."""

import ast
import re
from collections import Counter

import pytest

from tests.test_docs import ROOT, resolve
from tests.test_import_order import FILES, ORDER, SOURCE

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SHARED: set[str] = set()  # classes of two packages that share a name
NAMES = re.findall(rf"`((?:{'|'.join(ORDER)})\.(?!py`)[\w.]+)`", PAGE)


def listed(page):
    """The packages and files of the tree, as they stand in its rows' first cells."""
    rows = re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE)
    names = re.findall("`(.*?)`", " ".join(rows))
    return [name.removesuffix("/").removesuffix(".py") for name in names]


def test_the_tree_is_in_the_order_of_imports():
    assert listed(PAGE) == ORDER
    assert listed(PAGE.replace("| `data/` |", "| `date/` |")) != ORDER


def test_everything_in_the_source_is_in_the_tree():
    found = {path.name.removesuffix(".py") for path in SOURCE.iterdir()}
    assert found - {"__init__", "__pycache__", "py.typed", "configs", "results"} == set(ORDER)


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_every_name_on_the_page_exists(name):
    assert resolve(f"eos.{name}") is not None


def test_the_names_are_found():
    assert len(set(NAMES)) > 30
    with pytest.raises(AttributeError):
        resolve("eos.engine.reduced.Reduction.nothing")


def repeated(sources):
    """The names of classes that are defined more than once."""
    trees = [ast.parse(source) for source in sources]
    names = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return {name for name, count in Counter(names).items() if count > 1}


def test_a_class_has_a_name_of_its_own():
    assert repeated(path.read_text(encoding="utf-8") for path in FILES) <= SHARED
    assert repeated(["class A: ...", "class B: ...", "class A: ..."]) == {"A"}


def test_no_file_is_longer_than_the_house_rule():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert max(lengths.values()) <= 300
