"""Schemas: frozen pydantic models for everything that is read from or written to a file.

Unknown keys are refused with a suggestion, all problems are reported at once, and every artifact
carries ``"schema": "eos.<kind>/<n>"``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import isnan
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import yaml  # type: ignore[import-untyped]
from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import Self

from eos.errors import ConfigError, EosError, numbered
from eos.runs.files import write_atomically


def _refuse_nan(value: float) -> float:
    if isnan(value):
        raise ValueError("expected a number, found nan")
    return value


def _writable(value: float) -> float | str:
    return str(value) if value in (float("inf"), float("-inf")) else value


# JSON has no infinities: they are written as "inf" and "-inf", and read back from either form.
ExtendedFloat = Annotated[
    float,
    AfterValidator(_refuse_nan),
    PlainSerializer(_writable, return_type=float | str, when_used="json"),
]


class Frozen(BaseModel):
    """A value that cannot change and has no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Checked(Frozen):
    """A value that people make in Python, too: a wrong one raises an error in our own words."""

    error: ClassVar[type[EosError]] = ConfigError

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as failure:
            raise self.error(problems=problems_of(failure, type(self))) from None


class Artifact(Checked):
    """A top-level document that is loaded from and saved to JSON."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read and check a JSON file, or a YAML file by its suffix."""
        data = read_document(path, error=cls.error)
        if not isinstance(data, dict):
            raise cls.error(f"{path}: expected keys with values, found {type(data).__name__}")
        try:
            return cls(**data)
        except EosError as failure:
            raise cls.error(f"{path}: {failure}") from None

    def save(self, path: str | Path) -> None:
        """Write as JSON, atomically."""
        write_atomically(path, self.to_json())

    def to_json(self) -> str:
        """Write as indented JSON."""
        data = self.model_dump(mode="json", by_alias=True)
        return json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def read_document(
    path: str | Path, *, as_yaml: bool = False, error: type[EosError] = ConfigError
) -> Any:
    """Parse a JSON file; a YAML file by its suffix, or whatever its name with ``as_yaml``."""
    as_yaml = as_yaml or Path(path).suffix in (".yaml", ".yml")
    form, parse = ("YAML", yaml.safe_load) if as_yaml else ("JSON", json.loads)
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except OSError as failure:
        raise error(f"cannot read {path}: {failure.strerror}") from None
    except (ValueError, yaml.YAMLError) as failure:
        raise error(f"{path} is not {form}: {failure}") from None


def read_schema(path: str | Path) -> str:
    """Read which schema a JSON or YAML file names; "None" if it names none."""
    data = read_document(path)
    return str(data.get("schema")) if isinstance(data, dict) else "none"


# pydantic names the branch of a union that it tried
_TAGS = ("unified", "original", "world", "llava", "hub")


def problems_of(failure: ValidationError, model: type[BaseModel]) -> list[str]:
    """List the problems of a failed validation, with a suggestion for each unknown key."""
    return [problem for error in failure.errors() for problem in _problems(error, model)]


def describe(failure: ValidationError, model: type[BaseModel]) -> str:
    """Join the problems of a failed validation into one message."""
    return numbered(problems_of(failure, model))


def _problems(error: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    where = ".".join(str(part) for part in error["loc"] if part not in _TAGS)
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, ProblemsError):
        return raised.problems
    if isinstance(raised, EosError) and raised.problems:  # of a value inside this one
        own = [_of_another_kind(problem, error["loc"], model) for problem in raised.problems]
        return [f"{where}{_link(problem)}{problem}" for problem in own]
    if error["type"] == "extra_forbidden":
        known = list(_fields(_find(model, error["loc"][:-1])[0]))
        close = get_close_matches(str(error["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        return [f"{where}: unknown key; {hint}"]
    if error["type"] == "missing":
        return [f"{where}: missing"]
    message = str(raised) if raised else error["msg"][:1].lower() + error["msg"][1:]
    found = "" if isinstance(error["input"], dict) else f", found {error['input']!r}"
    return [f"{where}: {message}{found}" if where else message]


def _of_another_kind(problem: str, location: tuple[str | int, ...], model: type[BaseModel]) -> str:
    """Say which kind of a union an unknown key belongs to, if it is another one's."""
    key, _, message = problem.partition(": ")
    branches = _find(model, location)[1] if message.startswith("unknown key") else []
    kinds = [kind for branch in branches if key in branch.model_fields for kind in _kinds(branch)]
    outer = ".".join(str(part) for part in location if part not in _TAGS)
    return f"{key}: unknown key; it belongs to {outer}.kind={kinds[0]}" if kinds else problem


def _link(problem: str) -> str:
    """Join the path of a value with a problem inside it, which may name a key."""
    return "." if re.match(r"[\w.]+: ", problem) else ": "


class ProblemsError(ValueError):
    """Several problems found by one validator."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(numbered(problems))
        self.problems = problems


def _find(
    model: type[BaseModel], location: Sequence[str | int]
) -> tuple[type[BaseModel], list[type[BaseModel]]]:
    """Find the model at a location inside another, and the models of the union there."""
    branches: list[type[BaseModel]] = []
    for part in location:
        fields = _fields(model)
        if part in fields:
            branches = models_in(fields[part].annotation)
            model = branches[0] if branches else model
        model = next((x for x in branches if _kinds(x) == (part,)), model)
    return model, branches


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """List the models that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]
