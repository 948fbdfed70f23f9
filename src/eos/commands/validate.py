"""`eos validate`: check a file against the schema it names."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eos.commands.options import AsJson
from eos.errors import ConfigError

if TYPE_CHECKING:
    from eos.config import Artifact


def validate(
    file: Annotated[Path, typer.Argument(help="A plan.json, theta.json, results.json …")],
    as_json: AsJson = False,
) -> None:
    """Check a file and name everything that is wrong with it."""
    schema = validate_file(file)
    found = json.dumps({"file": str(file), "schema": schema, "valid": True})
    print(found if as_json else f"{file}: {schema}, valid")


def schemas() -> "dict[str, type[Artifact]]":
    """List the schemas of all files that are read or written."""
    from eos.evaluation.fidelity import Fidelity
    from eos.evaluation.latency import LatencyReport
    from eos.evaluation.reproduction import Examples, Programme, Trajectory
    from eos.evaluation.results import Results
    from eos.evaluation.settings import Settings
    from eos.evaluation.study import Study
    from eos.evaluation.verification import Verification
    from eos.searching.curves import Profile
    from eos.searching.settings import SearchConfig
    from eos.space.plan import Plan
    from eos.space.theta import ThetaFile

    return {
        "eos.plan/1": Plan,
        "eos.theta/1": ThetaFile,
        "eos.evaluation/1": Settings,
        "eos.results/1": Results,
        "eos.search/1": SearchConfig,
        "eos.fidelity/1": Fidelity,
        "eos.profile/1": Profile,
        "eos.latency/1": LatencyReport,
        "eos.study/1": Study,
        "eos.programme/1": Programme,
        "eos.trajectory/1": Trajectory,
        "eos.examples/1": Examples,
        "eos.verify/1": Verification,
    }


def validate_file(path: Path) -> str:
    """Check a file against the schema it claims; return that schema."""
    from eos.config import read_schema
    from eos.searching.files import read_config

    if path.suffix in (".yaml", ".yml"):  # what people write by hand: a search
        return read_config(path).schema_
    schema, known = read_schema(path), schemas()
    if schema not in known:
        raise ConfigError(f"{path}: expected a schema of {', '.join(known)}; found {schema!r}")
    known[schema].load(path)
    return schema
