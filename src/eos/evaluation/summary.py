"""Summary: results from the answers of an evaluation."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from eos.estimates import DIGITS
from eos.evaluation.ledger import Ledger, Prediction
from eos.evaluation.results import FamilyInfo, Results, make_row
from eos.evaluation.settings import FULL, Settings
from eos.evaluation.tasks import Task
from eos.space.plan import Plan


def summarise(settings: Settings, task: Task, ledger: Ledger, *, unreduced: Plan) -> Results:
    """Score all runs that have answered every question; ``unreduced`` has the full model's cost."""
    counts = task.counts(settings.split, settings.limit)
    answered = {run: _answered(counts, ledger, run) for run in settings.runs}
    whole = {run: found for run, found in answered.items() if found is not None}
    full = whole[FULL]
    families = {
        name: FamilyInfo(
            group=task.families[name].group,
            imitates=task.families[name].imitates,
            n=len(full[name]),
            chance=_chance(full[name]),
        )
        for name in settings.families
    }
    rows = [
        make_row(
            run,
            (settings.runs[run] or unreduced).expected,
            scores=_scores(found),
            full=None if run == FULL else _scores(full),
            families=families,
            totals=task.totals(found, None if run == FULL else full) if task.totals else {},
        )
        for run, found in whole.items()
    ]
    return Results(
        backbone=settings.backbone,
        fingerprint=settings.fingerprint,
        num_layers=unreduced.num_layers,
        visual_tokens=unreduced.visual_tokens,
        task=task.name,
        note=task.note,
        split=settings.split,
        seed=settings.seed,
        blank=settings.blank,
        families=families,
        rows=rows,
        problems=_problems(task),
    )


def _problems(task: Task) -> dict[str, int]:
    """Count the samples that were not used, by kind."""
    found: Counter[str] = Counter()
    for sample in task.skipped:
        found[sample.kind] += sample.count
    return dict(found)


def _answered(
    counts: Mapping[str, int], ledger: Ledger, run: str
) -> dict[str, list[Prediction]] | None:
    """A run's predictions by family in the order of the questions; None if some are missing."""
    found = {}
    for family, count in counts.items():
        own = ledger.of(run, family)
        if any(number not in own for number in range(count)):
            return None
        found[family] = [own[number] for number in range(count)]
    return found


def _chance(predictions: Sequence[Prediction]) -> float | None:
    known = [p.chance for p in predictions if p.chance is not None]
    return round(100 * fmean(known), DIGITS) if len(known) == len(predictions) else None


def _scores(found: Mapping[str, Sequence[Prediction]]) -> dict[str, list[float]]:
    return {family: [p.score for p in own] for family, own in found.items()}
