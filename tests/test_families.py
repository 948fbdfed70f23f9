"""A family is one entry: no file but families.py decides by a model's type."""

import ast

import pytest

from eos.models.families import FAMILIES
from eos.testing.tiny import tiny_backbone, tiny_inputs
from tests.test_import_order import FILES, SOURCE


def mentions(node, names):
    """Whether an expression reads ``model_type``, or a name that was assigned from it."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr == "model_type")
        or (isinstance(part, ast.Constant) and part.value == "model_type")
        or (isinstance(part, ast.Name) and part.id in names)
        for part in ast.walk(node)
    )


def decisions(tree):
    """Lines that compare or match a model type, also under another name."""
    names = {"model_type"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.NamedExpr)) and mentions(node.value, ()):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)}
    found = []
    for node in ast.walk(tree):
        compared = isinstance(node, ast.Compare) and mentions(node, names)
        matched = isinstance(node, ast.Match) and mentions(node.subject, names)
        prefixed = (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("startswith", "endswith")
            and mentions(node.func.value, names)
        )
        if compared or matched or prefixed:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_decides_by_a_model_type(path):
    found = decisions(ast.parse(path.read_text(encoding="utf-8")))
    assert bool(found) == (path == SOURCE / "models" / "families.py"), found


@pytest.mark.parametrize(
    "line",
    [
        "x.config.model_type == 'llava'",
        "y = getattr(x, 'model_type', '') != 'llava'",
        "kind = x.config.model_type\nif kind == 'gemma3': pass",
        "if (kind := x.config.model_type) in ('gemma3',): pass",
        "kind = x.config.model_type\nkind.startswith('qwen')",
        "match x.config.model_type:\n case 'llava': pass",
        "def f(model_type):\n return model_type == 'llava'",
    ],
)
def test_a_decision_is_noticed(line):
    assert decisions(ast.parse(line))


@pytest.mark.parametrize("kind", [k for k, family in FAMILIES.items() if not family.any_count])
def test_the_number_of_tokens_of_an_image_is_the_configurations(kind):
    backbone = tiny_backbone(kind)
    found = backbone.visual_mask(tiny_inputs(backbone)["input_ids"]).sum()
    assert backbone.family.tokens_per_image(backbone.model.config) == found
