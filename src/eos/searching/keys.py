"""Keys: every key of a search's configuration with its default and what it means.

They are read off the settings' fields and docstrings. Since settings import models, help texts read
them from a file in the package, which a test holds to this.
"""

import json
import re
from typing import Any

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from eos.config import models_in
from eos.searching.objective import Objective as Objective  # for the example below
from eos.searching.settings import SearchConfig

DIGITS = 4  # of a default
_ENTRY = re.compile(r"^(\w+(?:, \w+)*): (.*)$")


def config_keys() -> list[dict[str, str]]:
    """List keys in the order of the settings, the parts of a part after it."""
    return _keys(SearchConfig, "")


def keys_file() -> str:
    """Write the keys as the package has them."""
    return json.dumps(config_keys(), indent=1, ensure_ascii=False) + "\n"


def _keys(model: type[BaseModel], before: str, note: str = "") -> list[dict[str, str]]:
    found, meant = [], attributes(model.__doc__ or "")
    for name, field in model.model_fields.items():
        key, parts = f"{before}{field.alias or name}", models_in(field.annotation)
        if key == "schema" or (key == "data.kind" and note):
            continue
        about = meant.get(name, "")
        if not parts or before:  # the parts of validation.data are those of data
            default = _written(field.get_default(call_default_factory=True))
            found.append({"key": key, "default": default, "about": f"{note}{about}"})
            continue
        found.append({"key": key, "default": "", "about": f"{about} Its keys:"})
        for place, part in enumerate(parts):
            kind = part.model_fields["kind"].default if len(parts) > 1 else ""
            found += _keys(part, f"{key}.", f"({kind}) " if place else "")
    return found


def attributes(docstring: str) -> dict[str, str]:
    """Read the section "Attributes" of a docstring.

    >>> attributes(Objective.__doc__)["max_layers"]
    'C, the number of layers that reduce.'
    """
    _, _, section = docstring.partition("Attributes:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        entry = _ENTRY.match(line.strip()) if line.startswith(" " * 8) else None
        if entry and not line.startswith(" " * 9):
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def _written(default: Any) -> str:
    """Write a default as it would be typed."""
    if default is PydanticUndefined:
        return ""
    plain = list(default) if isinstance(default, tuple) else default
    plain = round(plain, DIGITS) if isinstance(plain, float) else plain
    text: str = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
