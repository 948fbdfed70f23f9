"""Assembly: the list of all pieces of a programme, each after those that it needs."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from eos.evaluation.tasks import find_task
from eos.programme import builders
from eos.programme.catalogue import ABLATIONS, PRESETS_FIRST, STUDIES
from eos.programme.context import ModelInfo, answers_path, plan_file, run_name
from eos.programme.pieces import Piece, with_needs
from eos.programme.rows import StudyInputs
from eos.programme.scope import Scope
from eos.programme.searches import SearchSpec, config_of, default_search, descent_budget, searches
from eos.space.plan import Plan

MAIN = "main"
EXAMPLES = 1  # pictures of a family
# seconds of the miniature on one core, which measured ones replace: of a profile, of a search for
# each validation sample, of a descent for each sample; of an answer for each question, for each
# plan, and for its FLOPs over the full model's
PROFILE_SECONDS, RACE_SECONDS, SAMPLE_SECONDS = 120.0, 0.4, 0.35
QUESTION_SECONDS, PLAN_SECONDS, FLOPS_SECONDS = 0.04, 0.003, 0.1
EXAMPLE_SECONDS, VERIFY_SECONDS = 0.3, 2.0


def assemble(scope: Scope, info: ModelInfo, *, studies: Sequence[str] | None = None) -> list[Piece]:
    """List the pieces of the whole programme; of some studies and what they need, if named."""
    names = chosen_studies(scope) if studies is None else studies
    pieces = [*_search_pieces(scope), *_study_pieces(scope, info, names), *_other_pieces(scope)]
    final = [f"study/{name}" for name in names]
    if studies is None:
        final += ["trajectory", "examples", "verify", f"search/profile-{scope.seeds[0]}"]
    return with_needs(pieces, final)


def chosen_studies(scope: Scope) -> list[str]:
    """Name the studies of the whole programme."""
    named = {name: spec for name, spec in STUDIES.items() if name != PRESETS_FIRST}
    return [x for x, spec in named.items() if (spec.quick if scope.quick else spec.applies(scope))]


def _search_pieces(scope: Scope) -> list[Piece]:
    """Make the pieces of profiles and searches."""
    specs = searches(scope)
    firsts = [next(x for x in specs.values() if x.profile == seed) for seed in scope.seeds]
    found = [_profile_piece(scope, spec) for spec in firsts]
    return found + [_search_piece(scope, spec) for spec in specs.values()]


def _profile_piece(scope: Scope, like: SearchSpec) -> Piece:
    """Make the piece of the profile that searches like this one start from."""
    assert like.profile is not None
    spec = replace(like, name=f"profile-{like.profile}", budget=scope.budgets[-1])
    given = builders.given_profile(spec.given)
    settings = config_of(scope, spec).identity() if given is None else given.model_dump(mode="json")
    return Piece(
        f"search/{spec.name}",
        "profile",
        builders.profile_file(like.profile, scope.seeds),
        partial(builders.make_profile, spec=spec),
        settings=settings,
        work=PROFILE_SECONDS if given is None else 0.0,
    )


def _search_piece(scope: Scope, spec: SearchSpec) -> Piece:
    settings: dict[str, Any] = {"budget": spec.budget}
    if spec.given is not None:
        settings["plan"] = run_name(builders.given_plan(spec.given, spec.budget))
    else:
        settings |= config_of(scope, spec).identity()
    profile = None if spec.given is not None else spec.profile
    return Piece(
        f"search/{spec.name}",
        "search",
        plan_file(spec.name),
        partial(builders.make_search, spec=spec),
        settings=settings,
        needs=() if profile is None else (f"search/profile-{profile}",),
        work=_search_seconds(scope, spec),
    )


def _search_seconds(scope: Scope, spec: SearchSpec) -> float:
    """Guess how long the miniature is searched on one core."""
    if spec.given is not None:
        return 0.0
    config = config_of(scope, spec)
    if spec.descent:
        return SAMPLE_SECONDS * (config.steps * config.batch + config.validation.samples)
    return RACE_SECONDS * (config.validation.samples + config.explore.confirm_samples)


def _study_pieces(scope: Scope, info: ModelInfo, names: Sequence[str]) -> list[Piece]:
    """Make the pieces of answers and studies.

    Every study goes through the families after the study before it: two pieces never write to one
    folder, and a plan of several studies answers once.
    """
    found: list[Piece] = []
    families = list(find_task(scope.task).families)
    answered: set[tuple[int, str]] = set()
    chain = [PRESETS_FIRST, *names] if MAIN in names else list(names)
    for place, name in enumerate(chain):
        work = _expected_answers(scope, info, name, answered)
        own = [_answers_piece(scope, info, name, family, work=work) for family in families]
        if place:
            own = [replace(x, after=(_answers(chain[place - 1], x),)) for x in own]
        if name == MAIN:
            own = [replace(x, needs=(*x.needs, *x.after)) for x in own]
        found += own
        if name != PRESETS_FIRST:
            found.append(_study_piece(scope, name, [piece.name for piece in own]))
    return found


def _answers(study: str, like: Piece) -> str:
    """Name the piece of another study's answers to the same family."""
    return f"answers/{study}/{like.name.rpartition('/')[2]}"


def _answers_piece(scope: Scope, info: ModelInfo, study: str, family: str, *, work: float) -> Piece:
    spec = STUDIES[study]
    own = spec.scope(scope)
    rows = {"study": study, "rows": spec.settings, "scope": _row_settings(scope)}
    return Piece(
        f"answers/{study}/{family}",
        "answers",
        f"{answers_path(own, info.fingerprint, family)}/results.json",
        partial(builders.make_answers, study=study, family=family),
        settings={**rows, "family": family, **own.questions},
        needs=tuple(f"search/{name}" for name in spec.searches(scope)),
        work=work,
    )


def _study_piece(scope: Scope, name: str, answers: Sequence[str]) -> Piece:
    spec = STUDIES[name]
    return Piece(
        f"study/{name}",
        "study",
        f"studies/{name}.json",
        partial(builders.make_study_file, study=name, commands=[command_of(scope, name)]),
        settings={"title": spec.title, "labels": list(spec.labels)},
        needs=(*(f"search/{own}" for own in spec.searches(scope)), *answers),
    )


def _row_settings(scope: Scope) -> dict[str, Any]:
    """Choose what of the scope rows follow from."""
    chosen = {"budgets", "sweep", "seeds", "presets", "slices", "quick"}
    return scope.model_dump(mode="json", include=chosen)


def _expected_answers(
    scope: Scope, info: ModelInfo, study: str, answered: set[tuple[int, str]]
) -> float:
    """Guess the seconds of a study's answers to a family; note which plans answer.

    Before the searches are done an even schedule stands for every plan that they will find.
    """
    target = info.target._asdict()
    names = STUDIES[study].searches(scope)
    plans = {x: Plan.preset("even", budget=int(x.split("@")[1]), **target) for x in names}
    limit = STUDIES[study].scope(scope).limit
    work = QUESTION_SECONDS
    if limit not in {own for own, _ in answered}:
        work += FLOPS_SECONDS  # the full model answers once
    for row in STUDIES[study].rows(StudyInputs(scope, plans, info.target)):
        own = f"{row.method} {row.name}" if row.searched else run_name(row.plan)
        own = f"{study} {row.name}" if row.method in ("swept", "moved") else own
        if (limit, own) not in answered:
            answered.add((limit, own))
            work += PLAN_SECONDS + FLOPS_SECONDS * row.plan.expected.flops_ratio
    return work * limit


def _other_pieces(scope: Scope) -> list[Piece]:
    """Make the pieces that are no studies."""
    plans = tuple(f"search/{default_search(scope, budget)}" for budget in scope.budgets)
    descent = f"search/paper@{descent_budget(scope)}"
    shown = {"budgets": list(scope.budgets), "count": EXAMPLES, **scope.questions}
    families = len(find_task(scope.task).families)
    return [
        Piece(
            "trajectory",
            "trajectory",
            "trajectory.json",
            builders.make_trajectory,
            needs=(descent, *plans),
        ),
        Piece(
            "examples",
            "examples",
            "examples.json",
            partial(builders.make_examples_file, count=EXAMPLES),
            settings=shown,
            needs=plans,
            work=EXAMPLE_SECONDS * EXAMPLES * families * len(plans),
        ),
        Piece("verify", "verify", "verify.json", builders.make_verify, work=VERIFY_SECONDS),
    ]


def command_of(scope: Scope, study: str | None = None) -> str:
    """Write the command line that repeats a study, or the whole programme."""
    default = Scope()
    verb = next((name for name, own in ABLATIONS.items() if study in own), None)
    words = ["eos", "reproduce"] if verb is None else ["eos", "ablate", verb]
    words += [] if scope.config == default.config else [scope.config]
    words += list(scope.changes)
    words += ["--quick"] if scope.quick else []
    for spec in scope.searches:
        words += ["--search", spec]
    for name in scope.presets or ():
        words += ["--preset", name]
    for option in ("limit", "seed", "task", "device", "dtype", "attention", "batch_size", "paper"):
        value = scope.model_dump()[option]
        if value != default.model_dump()[option]:
            words += [f"--{option.replace('_', '-')}", str(value)]
    if scope.budgets != default.budgets:
        words += ["--budgets", ",".join(map(str, scope.budgets))]
    for change in scope.descent:
        words += ["--descent", change]
    return shlex.join([*words, "--out", "runs/reproduce"])
