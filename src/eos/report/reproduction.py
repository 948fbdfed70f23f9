"""Reproduction: all that folders of `eos reproduce`, and result files beside them, hold.

Files are read and checked; nothing is computed, and torch is not imported.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from eos.config import Artifact, read_schema
from eos.errors import ConfigError
from eos.evaluation.reproduction import Examples, Programme, Trajectory
from eos.evaluation.results import Results
from eos.evaluation.study import Study
from eos.evaluation.verification import Verification
from eos.report.plans import PlanView
from eos.searching.curves import Profile

T = TypeVar("T", bound=Artifact)
# where a folder holds what a report reads; run folders inside it are the state of searches
PATTERNS = (
    "programme.json",
    "studies/*.json",
    "trajectory.json",
    "examples.json",
    "verify.json",
    "profile.json",
    "results.json",
    "plan*.json",
)


@dataclass(frozen=True)
class Reproduction:
    """The files of one or several folders, each checked against its schema.

    Attributes:
        files: by path, in the order of the folders.
    """

    files: Mapping[Path, Artifact]

    def all(self, kind: type[T]) -> list[T]:
        """List the files of a kind."""
        return [file for file in self.files.values() if isinstance(file, kind)]

    def one(self, kind: type[T]) -> T | None:
        """Give the file of a kind, None if there is none; several that differ are refused."""
        found = {path: file for path, file in self.files.items() if isinstance(file, kind)}
        if any(file != next(iter(found.values())) for file in found.values()):
            raise ConfigError(
                f"expected one {kind.__name__.lower()} for this figure, found "
                f"{', '.join(map(str, found))}; report on one folder at a time"
            )
        return next(iter(found.values()), None)

    @property
    def studies(self) -> list[Study]:
        """All studies."""
        return self.all(Study)

    def study(self, name: str) -> Study | None:
        """Give the study of a name, None if it was not run.

        Files of one setting are joined; of several settings they are refused, since one figure
        would mix them.
        """
        found = [study for study in self.studies if study.name == name]
        if len(by_setting(found)) > 1:
            what = "; ".join(describe_differences(found))
            raise ConfigError(
                f"expected one setting of the study {name!r}, found "
                f"{len(by_setting(found))}: {what}; report on one folder at a time"
            )
        return join(found) if found else None


def load(paths: Sequence[str | Path]) -> Reproduction:
    """Read folders of `eos reproduce`, folders of plans and results, and single files."""
    files: dict[Path, Artifact] = {}
    for path in map(Path, paths):
        own = list(_files_in(path)) if path.is_dir() else [path]
        if not own:
            raise ConfigError(
                f"expected results in {path} ({', '.join(PATTERNS)}), found none of them; make "
                "them with `eos reproduce` or `eos eval`"
            )
        files |= {file: _read(file) for file in own}
    return Reproduction(files)


def _files_in(folder: Path) -> Iterator[Path]:
    for pattern in PATTERNS:
        yield from sorted(folder.glob(pattern))


def _read(path: Path) -> Artifact:
    schema = read_schema(path)
    if schema not in KINDS:
        raise ConfigError(
            f"{path}: expected one of the schemas {', '.join(KINDS)}; found {schema!r}"
        )
    return KINDS[schema].load(path)


def setting(study: Study | Results) -> dict[str, str]:
    """Say what two files must share for their numbers to stand in one block."""
    families = study.families
    counts = sorted({info.n for info in families.values()})
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return {
        "backbone": f"{study.backbone} ({study.fingerprint})",
        "layers": str(study.num_layers),
        "visual tokens": str(study.visual_tokens),
        "task": study.task,
        "split": study.split,
        "seed": str(study.seed),
        "questions a family": n,
        "families": ", ".join(families),
        "eos": study.version if isinstance(study, Study) else "not recorded",
    }


def by_setting(studies: Sequence[Study]) -> list[list[Study]]:
    """Group studies that may share a block."""
    groups: dict[tuple[str, ...], list[Study]] = {}
    for study in studies:
        groups.setdefault(tuple(setting(study).values()), []).append(study)
    return list(groups.values())


def describe_differences(studies: Sequence[Study]) -> list[str]:
    """Name, for each group of `by_setting`, the values in which the groups differ."""
    settings = [setting(group[0]) for group in by_setting(studies)]
    keys = [key for key in (settings[0] if settings else ()) if len({s[key] for s in settings}) > 1]
    return [", ".join(f"{key} {own[key]}" for key in keys) for own in settings]


def join(studies: Sequence[Study]) -> Study:
    """Put the rows of studies with one setting together; a row that two have must be the same."""
    first, *others = studies
    rows = {row.name: row for row in first.rows}
    for other in others:
        for row in other.rows:
            if rows.setdefault(row.name, row) != row:
                raise ConfigError(
                    f"expected equal rows {row.name!r} in files of the study {first.name!r} with "
                    "the same backbone, questions and version; found two that differ. Report on "
                    "one folder at a time, or remove the file that is out of date"
                )
    return first.model_copy(update={"rows": tuple(rows.values())})


KINDS: dict[str, type[Artifact]] = {
    "eos.programme/1": Programme,
    "eos.study/1": Study,
    "eos.trajectory/1": Trajectory,
    "eos.examples/1": Examples,
    "eos.verify/1": Verification,
    "eos.profile/1": Profile,
    "eos.results/1": Results,
    "eos.plan/1": PlanView,
}
