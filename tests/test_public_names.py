"""The public interface: names that normal work needs, each function with an example that runs."""

import ast
import doctest
import inspect

import pytest

import eos

FUNCTIONS = [name for name in eos.__all__ if inspect.isfunction(inspect.unwrap(getattr(eos, name)))]


def examples(docstring):
    """The lines of a docstring's examples, and which of them are skipped."""
    found = doctest.DocTestParser().get_examples(docstring)
    return [x.source for x in found], [x.source for x in found if doctest.SKIP in x.options]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_an_example_that_runs(name):
    lines, skipped = examples(inspect.unwrap(getattr(eos, name)).__doc__)
    assert lines
    assert not skipped


def test_a_skipped_example_is_noticed():
    lines, skipped = examples(">>> 1 + 1  # doctest: +SKIP\n2\n>>> 2\n2\n")
    assert (len(lines), len(skipped)) == (2, 1)
    assert examples("No example.") == ([], [])


def test_names_are_imported_on_first_use_and_unknown_ones_are_refused():
    assert set(eos.__all__) == set(dir(eos))
    assert {"SearchResult", "Source", "Sample", "WorldData", "LlavaData", "HubData"} <= set(
        dir(eos)
    )
    with pytest.raises(AttributeError, match="no attribute 'Omega'"):
        _ = eos.Omega  # for insiders: eos.operator.operate.Omega


def test_type_checkers_see_the_same_names():
    tree = ast.parse(inspect.getsource(eos))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in guarded.body for alias in node.names}
    assert seen | {"__version__"} == set(eos.__all__)
