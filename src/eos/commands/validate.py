"""Run `eos validate`: check a file against the schema it names."""

import json
from pathlib import Path

from eos.config import Artifact
from eos.errors import ConfigError
from eos.evaluation.fidelity import Fidelity
from eos.evaluation.latency import LatencyReport
from eos.evaluation.results import Results
from eos.evaluation.settings import Settings
from eos.methods.registry import PRESETS
from eos.searching.files import read_config
from eos.searching.profile import Profile
from eos.searching.settings import SearchConfig
from eos.space.plan import Plan
from eos.space.theta import ThetaFile

SCHEMAS: dict[str, type[Artifact]] = {
    "eos.plan/1": Plan,
    "eos.theta/1": ThetaFile,
    "eos.evaluation/1": Settings,
    "eos.results/1": Results,
    "eos.search/1": SearchConfig,
    "eos.fidelity/1": Fidelity,
    "eos.profile/1": Profile,
    "eos.latency/1": LatencyReport,
}


def validate_file(path: Path) -> str:
    """Check a file against the schema it claims; return that schema."""
    if path.suffix in (".yaml", ".yml"):  # what people write by hand: a search
        return read_config(path).schema_
    schema = read_schema(path)
    if schema not in SCHEMAS:
        raise ConfigError(f"{path}: expected a schema of {', '.join(SCHEMAS)}; found {schema!r}")
    SCHEMAS[schema].load(path)
    return schema


def read_schema(path: Path) -> str:
    """Read which schema a JSON file names; "none" if it names none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigError(
            f"cannot read {path}: {failure.strerror}; expected a file, or a preset of "
            f"{', '.join(PRESETS)}"
        ) from None
    except ValueError as failure:
        raise ConfigError(f"{path} is not JSON: {failure}") from None
    return str(data.get("schema")) if isinstance(data, dict) else "none"
