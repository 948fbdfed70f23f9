"""Page data: what the page of a reproduction shows, as one JSON value of moderate size.

Scores of single questions stay behind; token sets and flows travel as bits and 16-bit numbers.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from struct import pack
from typing import Any, TypeVar

from eos.config import Artifact
from eos.evaluation.estimates import Score
from eos.evaluation.reproduction import (
    ExampleItem,
    Examples,
    Flow,
    OperatorExample,
    Programme,
    Trajectory,
)
from eos.evaluation.study import FULL_ROW, Study, StudyRow, compare
from eos.evaluation.verification import Verification
from eos.report.page_text import SEARCHED, about, facts, first_searched, highlights, strongest_rival
from eos.report.plans import PlanView, StepView
from eos.report.profile import best_curves
from eos.report.reproduction import Reproduction, by_setting, setting
from eos.report.verdicts import verdicts
from eos.searching.curves import Profile

T = TypeVar("T", bound=Artifact)
MAIN = "main"
GONE = 0xFFFF  # where a dropped token goes that leaves no trace
DIGITS = 3


def page_data(reproduction: Reproduction) -> dict[str, Any]:
    """Collect what the page shows: folders whose numbers may stand together are one source."""
    groups: list[Reproduction] = []
    for files in _by_folder(reproduction).values():
        own = Reproduction(files)
        for place, group in enumerate(groups):
            if _comparable([*group.studies, *own.studies]):
                groups[place] = Reproduction({**group.files, **files})
                break
        else:
            groups.append(own)
    shown = [group for group in groups if group.studies] or groups
    return {"sources": [_source(group) for group in shown]}


def _comparable(studies: Sequence[Study]) -> bool:
    """Whether studies are of one model and version, those of a name on the same questions."""
    models = {(study.backbone, study.fingerprint, study.version) for study in studies}
    names = {study.name for study in studies}
    by_name = [[study for study in studies if study.name == name] for name in names]
    return len(models) == 1 and all(len(by_setting(own)) == 1 for own in by_name)


def _by_folder(reproduction: Reproduction) -> dict[Path, dict[Path, Artifact]]:
    found: dict[Path, dict[Path, Artifact]] = {}
    for path, file in reproduction.files.items():
        folder = path.parent.parent if path.parent.name == "studies" else path.parent
        found.setdefault(folder, {})[path] = file
    return found


def _source(reproduction: Reproduction) -> dict[str, Any]:
    """Write what comparable folders hold; None for what they do not."""
    names = list(dict.fromkeys(study.name for study in reproduction.studies))
    studies = [study for name in names if (study := reproduction.study(name)) is not None]
    main, programmes = reproduction.study(MAIN), reproduction.all(Programme)
    settings = [
        setting(group[0]) for group in by_setting(sorted(studies, key=lambda own: own.name != MAIN))
    ]
    files: list[Programme | Study] = [*programmes, *studies]
    return {
        "about": about(settings[0] if settings else {}, quick=any(x.quick for x in programmes)),
        "highlights": highlights(main) if main else [],
        "rival": strongest_rival(main) if main else None,
        "studies": [_study(study) for study in studies],
        "trajectory": _first(reproduction, Trajectory, _trajectory),
        "examples": _first(reproduction, Examples, _examples),
        "verify": _first(reproduction, Verification, _verification),
        "profile": _first(reproduction, Profile, _profile),
        "verdicts": [own.model_dump() for own in verdicts(reproduction)],
        "commands": list(dict.fromkeys(command for own in files for command in own.commands)),
        "facts": facts([own.environment for own in files], settings),
        "pieces": [x.model_dump(mode="json") for own in programmes for x in own.pieces],
    }


def _first(reproduction: Reproduction, kind: type[T], write: Callable[[T], Any]) -> Any:
    """Write the first file of a kind; None if there is none."""
    files = reproduction.all(kind)
    return write(files[0]) if files else None


def _study(study: Study) -> dict[str, Any]:
    taken = {"name", "title", "labels", "num_layers", "visual_tokens"}
    ahead = _ahead(study) if study.name == MAIN else {}
    return {
        **study.model_dump(mode="json", include=taken),
        "families": list(study.families),
        "rows": [_row(row, ahead.get(row.name)) for row in study.rows],
    }


def _row(row: StudyRow, ahead: list[float] | None) -> dict[str, Any]:
    return {
        **row.model_dump(mode="json", include={"name", "method", "searched", "factors"}),
        "cost": row.cost.model_dump(mode="json", exclude={"flops_formula"}),
        "average": _score(row.average),
        "families": {name: [own.accuracy, own.stderr] for name, own in row.families.items()},
        "steps": plan_steps(row.plan),
        "ahead": ahead,
    }


def _score(own: Score) -> dict[str, Any]:
    paired = own.difference
    return {
        "accuracy": own.accuracy,
        "stderr": own.stderr,
        "n": own.n,
        "difference": paired and [paired.points, paired.stderr, paired.low, paired.high],
    }


def _ahead(study: Study) -> dict[str, list[float]]:
    """Compare the searched plan of each budget with the other rows, question by question."""
    searched = first_searched(study)
    found = {}
    for row in study.rows:
        own = searched.get(row.factors.get("budget", ""))
        if own is not None and row.method not in (SEARCHED, FULL_ROW):
            difference = compare(own, row)
            found[row.name] = [difference.points, difference.low, difference.high]
    return found


def plan_steps(plan: Mapping[str, Any] | None) -> list[dict[str, Any]] | None:
    """Write the steps of a plan with the regime of each; None for the full model."""
    return None if plan is None else [_step(step) for step in PlanView(**plan).steps]


def _step(step: StepView) -> dict[str, Any]:
    return {
        **step.model_dump(mode="json", include={"layer", "keep", "score"}),
        "kind": step.kind,
        "hybrid": step.hybrid,
        "label": f"{step.label}, mass {step.mass:g}" if step.mass else step.label,
        "omega": [step.operator.get(name) for name in step.omega or ()],
    }


def _trajectory(trajectory: Trajectory) -> dict[str, Any]:
    """Turn a descent into columns: each group's values by step and site, each loss by step."""
    steps = trajectory.steps
    groups = list(steps[0].theta) if steps else []
    terms = list(steps[0].loss) if steps else []
    return {
        **trajectory.model_dump(mode="json", include={"budget", "sites", "start"}),
        "steps": [step.step for step in steps],
        "theta": {name: [_rounded(step.theta[name]) for step in steps] for name in groups},
        "losses": {name: _rounded([step.loss.get(name, 0) for step in steps]) for name in terms},
        "stages": trajectory.model_dump(mode="json", include={"stages"})["stages"],
    }


def _rounded(values: Sequence[float]) -> list[float | str]:
    return [str(x) if x - x != 0 else round(x, DIGITS) for x in values]


def _examples(examples: Examples) -> dict[str, Any]:
    return {
        **examples.model_dump(mode="json", include={"num_layers", "visual_tokens"}),
        "plans": {b: plan_steps(own.plan) for b, own in examples.plans.items()},
        "items": [_item(item) for item in examples.items],
        "operators": _operators(examples.operators),
    }


def _item(item: ExampleItem) -> dict[str, Any]:
    taken = {"question", "answer", "family", "image", "grid"}
    tokens = item.grid[0] * item.grid[1]
    runs = {
        budget: {
            "answer": run.answer,
            "steps": [
                {"layer": step.layer, "kept": bits(step.kept, tokens), "flows": pairs(step.flows)}
                for step in run.steps
            ],
        }
        for budget, run in item.plans.items()
    }
    return {**item.model_dump(mode="json", include=taken), "full": item.full.answer, "runs": runs}


def _operators(example: OperatorExample) -> dict[str, Any]:
    tokens = example.grid[0] * example.grid[1]
    return {
        **example.model_dump(mode="json", include={"image", "grid", "layer", "keep", "score"}),
        "views": {
            name: {
                "kept": bits(view.kept, tokens),
                "flows": pairs(view.flows),
                "weights": _rounded(view.weights),
                "scales": _rounded(view.scales),
            }
            for name, view in example.operators.items()
        },
    }


def bits(kept: Sequence[int], tokens: int) -> str:
    """Write a set of tokens as bits, the first token the lowest bit of the first byte."""
    mask = sum(1 << token for token in set(kept))
    return b64encode(mask.to_bytes((tokens + 7) // 8, "little")).decode()


def pairs(flows: Sequence[Flow]) -> str:
    """Write where dropped tokens go as 16-bit numbers, from and to in turn."""
    flat = [number for token, to in flows for number in (token, GONE if to is None else to)]
    return b64encode(pack(f"<{len(flat)}H", *flat)).decode()


def _verification(found: Verification) -> list[dict[str, Any]]:
    kinds = {"Listing 3": found.listing, "exact limit": found.limits}
    return [
        {"of": kind, **check.model_dump(mode="json"), "passed": check.passed}
        for kind, checks in kinds.items()
        for check in checks
    ]


def _profile(profile: Profile) -> list[dict[str, Any]]:
    """Write the curve of the best score at each site."""
    return [
        {"layer": site, "score": name, "counts": counts, "means": means, "errors": errors}
        for site, (name, counts, means, errors) in best_curves(profile).items()
    ]
