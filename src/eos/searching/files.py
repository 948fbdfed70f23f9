"""Files: configurations by name or path, with values of the command line on top."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from eos.config import read_document
from eos.errors import ConfigError, numbered
from eos.runs.files import write_atomically
from eos.searching.settings import SearchConfig

DEFAULT = "miniature"


@dataclass(frozen=True)
class TracedValue:
    """A value of a configuration by its key; its origin is a file, the command line, or neither."""

    key: str
    value: Any
    origin: str


def configs() -> dict[str, Path]:
    """Find the packaged configurations, by name."""
    folder = Path(str(files("eos"))) / "configs"
    found = [*folder.glob("search/*.yaml"), *folder.glob("paper/*.yaml")]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def purpose(path: Path) -> str:
    """Say what a configuration is for: the first line of its header."""
    return path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")


def read_config(source: str | Path | None = None, changes: Sequence[str] = ()) -> SearchConfig:
    """Read a configuration by name or path; ``key=value`` changes win, also ``false`` and ``0``."""
    path = _find(source)
    data = _read(path)
    try:
        return SearchConfig(**changed(data, changes))
    except ConfigError as failure:
        at_fault = " ".join(changes) if changes and _is_valid(data) else path
        raise ConfigError(f"{at_fault}: {failure}") from None


def _read(path: Path) -> dict[str, Any]:
    data = read_document(path, as_yaml=True)
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected keys with values, found {type(data).__name__}")
    return data


def trace_values(
    source: str | Path | None = None, changes: Sequence[str] = ()
) -> list[TracedValue]:
    """List every value of a configuration with where it comes from."""
    path = _find(source)
    config = read_config(source, changes)
    given = dict(leaves(changed(_read(path), changes)))
    named = f"config {path.stem}" if path in configs().values() else str(path)
    typed = [change.partition("=")[0] for change in changes]
    found = []
    for key, value in leaves(config.model_dump(mode="json", by_alias=True)):
        origin = "default"
        if any(key == name or key.startswith(f"{name}.") for name in typed):
            origin = "command line"
        elif key in given or any(key.startswith(f"{name}.") for name in given):
            origin = named
        found.append(TracedValue(key, value, origin))
    return found


def leaves(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """List the values of nested mappings by their keys, joined by dots."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _is_valid(data: dict[str, Any]) -> bool:
    """Whether a configuration is in order without the changes that were given."""
    try:
        SearchConfig(**data)
    except ConfigError:
        return False
    return True


def changed(data: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Put ``key=value`` into a configuration; dots lead inside, values are YAML."""
    result, problems = deepcopy(data), []
    # another kind has other keys, so it is set before them, wherever it stands
    for change in sorted(changes, key=lambda given: ".kind=" not in given):
        key, equals, text = change.partition("=")
        if not equals or not key:
            problems.append(f"expected key=value, found {change!r}")
            continue
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            problems.append(f"{key}: expected a value in YAML, found {text!r}")
            continue
        *way, last = key.split(".")
        place = result
        for part in way:
            inside = place.get(part)
            place[part] = place = inside if isinstance(inside, dict) else {}
        if last == "kind" and place.get("kind") != value:
            place.clear()  # another kind of data has other keys
        place[last] = value
    if problems:
        raise ConfigError(numbered(problems))
    return result


def write_config(path: Path, config: SearchConfig) -> None:
    """Write a configuration as YAML, every value included."""
    data = config.model_dump(mode="json", by_alias=True)
    write_atomically(path, yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def _find(source: str | Path | None) -> Path:
    """Find a configuration by name or path; the default one if None."""
    source = DEFAULT if source is None else source
    known = configs()
    if str(source) in known:
        return known[str(source)]
    path = Path(source)
    if path.is_dir():
        return path / "config.yaml"
    if path.exists() or path.suffix in (".yaml", ".yml"):
        return path
    close = get_close_matches(str(source), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(
        f"expected a YAML file, the folder of a run, or one of {', '.join(known)}; found "
        f"{str(source)!r}{hint}"
    )
