"""Studies: make a study from the folders of evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from typing import Any

from eos.errors import ConfigError
from eos.evaluation.ledger import Ledger
from eos.evaluation.results import FamilyInfo, Results, make_row
from eos.evaluation.settings import FULL, Settings
from eos.evaluation.study import FULL_ROW, Study, StudyRow
from eos.runs.identity import check_same
from eos.space.plan import Plan
from eos.version import __version__


@dataclass(frozen=True)
class RowSpec:
    """A row of a study: its name there, and the run of an evaluation that it is made from.

    ``plan`` is shown if the run answers for several that do the same.
    """

    name: str
    run: str
    method: str
    searched: bool = False
    factors: Mapping[str, float | str] = field(default_factory=dict)
    plan: Plan | None = None


FULL_SPEC = RowSpec(FULL_ROW, FULL, FULL_ROW)


@dataclass(frozen=True)
class Evaluated:
    """What the folder of an evaluation holds."""

    settings: Settings
    results: Results
    ledger: Ledger
    environment: dict[str, Any]

    @classmethod
    def load(cls, folder: Path) -> "Evaluated":
        """Read a folder of a finished evaluation."""
        return cls(
            Settings.load(folder / "config.json"),
            Results.load(folder / "results.json"),
            Ledger(folder / "predictions.jsonl"),
            loads((folder / "env.json").read_text(encoding="utf-8")),
        )

    def scores(self, run: str) -> dict[str, tuple[float, ...]]:
        """List the scores of a run by family, in the order of the questions; 0 and 1 as ints."""
        found = {}
        for family, info in self.results.families.items():
            own = self.ledger.of(run, family)
            if len(own) < info.n:
                raise ConfigError(
                    f"expected {info.n} answers of {run!r} in {family}, found {len(own)} in "
                    f"{self.ledger.path}; finish the evaluation"
                )
            found[family] = tuple(_whole(own[number].score) for number in range(info.n))
        return found


def _whole(score: float) -> float:
    return int(score) if score == int(score) else score


SHARED = {"backbone", "fingerprint", "num_layers", "visual_tokens", "task", "note", "split", "seed"}


def make_study(
    folders: Sequence[Path],
    rows: Sequence[RowSpec],
    *,
    name: str,
    title: str,
    labels: Sequence[str] = (),
    commands: Sequence[str] = (),
) -> Study:
    """Make a study of runs that the folders hold; each folder has other families of one task.

    The full model's row comes first, whether or not it is among ``rows``.
    """
    parts = [Evaluated.load(folder) for folder in folders]
    first = parts[0]
    for folder, part in zip(folders, parts, strict=True):
        known, found = (x.settings.identity | {"families": None} for x in (first, part))
        check_same(folder, known, found, what="evaluation")
    full = _scores(parts, FULL)
    families = {x: info for part in parts for x, info in part.results.families.items()}
    return Study(
        name=name,
        title=title,
        labels=tuple(labels),
        version=__version__,
        limit=first.settings.limit,
        families=families,
        environment=first.environment,
        commands=tuple(commands),
        rows=tuple(
            _row(spec, first, _scores(parts, spec.run), full=full, families=families)
            for spec in [FULL_SPEC, *(row for row in rows if row.run != FULL)]
        ),
        **first.results.model_dump(include=SHARED),
    )


def _scores(parts: Sequence[Evaluated], run: str) -> dict[str, tuple[float, ...]]:
    return {family: own for part in parts for family, own in part.scores(run).items()}


def _row(
    spec: RowSpec,
    first: Evaluated,
    scores: Mapping[str, tuple[float, ...]],
    *,
    full: Mapping[str, tuple[float, ...]],
    families: Mapping[str, FamilyInfo],
) -> StudyRow:
    plan = spec.plan or first.settings.runs[spec.run]
    row = make_row(
        spec.name,
        first.results.row(spec.run).cost,
        scores=scores,
        full=None if spec.run == FULL else full,
        families=families,
    )
    return StudyRow(
        **dict(row),
        method=spec.method,
        searched=spec.searched,
        factors=dict(spec.factors),
        # of where a plan came from, files would hold every stage again with every row
        plan=plan and plan.model_dump(mode="json", by_alias=True, exclude={"provenance"}),
        scores=dict(scores),
    )
