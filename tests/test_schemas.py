"""The JSON Schemas in docs/ are those of the code; `python -m tests.test_schemas` rewrites them."""

import json
from pathlib import Path

import pytest

from eos.commands.validate import schemas

SCHEMAS = schemas()
FOLDER = Path(__file__).parent.parent / "docs" / "schemas"


def name_of(schema):
    """eos.plan/1 is described in plan-1.json."""
    return schema.removeprefix("eos.").replace("/", "-") + ".json"


def described(schema):
    """Files as they are written, derived entries included."""
    return json.dumps(SCHEMAS[schema].model_json_schema(mode="serialization"), indent=2) + "\n"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_schema_in_the_documentation_is_current(schema):
    assert (FOLDER / name_of(schema)).read_text(encoding="utf-8") == described(schema)


if __name__ == "__main__":
    for schema in SCHEMAS:
        (FOLDER / name_of(schema)).write_text(described(schema), encoding="utf-8")
