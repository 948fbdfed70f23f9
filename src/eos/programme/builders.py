"""Builders: how each kind of piece is made."""

from pathlib import Path

from eos.errors import ConfigError
from eos.evaluation.evaluate import DEFAULT_SPLIT, evaluate
from eos.evaluation.studies import RowSpec, make_study
from eos.evaluation.verify import verify
from eos.programme.catalogue import STUDIES
from eos.programme.context import Context, canonical, plan_file, run_name
from eos.programme.examples import make_examples
from eos.programme.pieces import OnProgress
from eos.programme.rows import SEARCHED_AT, PlanRow, StudyInputs
from eos.programme.searches import SearchSpec, config_of, default_search, descent_budget
from eos.programme.trajectory import read_trajectory
from eos.runs.lock import locked
from eos.searching.curves import Profile
from eos.searching.opening import pick_sources
from eos.searching.planner import find_profile, open_search
from eos.searching.run import Status
from eos.searching.search import search
from eos.space.plan import Plan
from eos.space.searched import load_plan_of_run, load_searched, searched


def profile_file(seed: int, seeds: tuple[int, ...]) -> str:
    """Name the file of a profile; the first seed's is part of what a report reads."""
    return "profile.json" if seed == seeds[0] else f"profiles/{seed}.json"


def make_profile(context: Context, on_progress: OnProgress, *, spec: SearchSpec) -> None:
    """Measure the profile that the searches of a seed start from, or take the one given."""
    assert spec.profile is not None
    path = context.folder / profile_file(spec.profile, context.scope.seeds)
    given = given_profile(spec.given)
    if given is not None:
        given.save(path)
        return
    config = config_of(context.scope, spec)

    def watch(status: Status) -> None:
        on_progress(status.done, status.total)

    folder = context.run_folder(spec.name)
    with locked(folder):
        opened = open_search(
            context.backbone,
            pick_sources(config.data, None, config),
            config,
            processor=context.answerer.processor,
            folder=folder,
            watch=watch,
        )
        find_profile(opened).save(path)


def given_profile(spec: str | None) -> Profile | None:
    """Load the profile beside plans that take the place of a search; None if there is none."""
    if spec is None:
        return None
    name = spec.partition("@")[0]
    folder = next(iter(searched()[name].values())).parent if name in searched() else Path(spec)
    path = folder / "profile.json"
    return Profile.load(path) if path.exists() else None


def make_search(context: Context, on_progress: OnProgress, *, spec: SearchSpec) -> None:
    """Search a plan, or take the one that was given."""
    path = context.folder / plan_file(spec.name)
    if spec.given is not None:
        given_plan(spec.given, spec.budget).save(path)
        return
    profile = None
    if spec.profile is not None:
        name = profile_file(spec.profile, context.scope.seeds)
        profile = str((context.folder / name).resolve())
    config = config_of(context.scope, spec, profile=profile)

    def watch(status: Status) -> None:
        on_progress(status.done, status.total)

    data, validation = pick_sources(config.data, None, config)
    found = search(
        context.backbone,
        data,
        config,
        validation=validation,
        processor=context.answerer.processor,
        out=context.run_folder(spec.name),
        watch=watch,
    )
    found.plans[spec.budget].save(path)


def given_plan(spec: str, budget: int) -> Plan:
    """Load a plan that takes the place of a search; of the nearest budget if it has not this one.

    A budget that it was rescaled from is in its provenance.
    """
    name = spec.partition("@")[0]
    if name in searched():
        plan, own = load_searched(name, budget), set(searched()[name])
    elif Path(spec).is_dir():
        plan = load_plan_of_run(Path(spec), budget)
        own = {Plan.load(path).expected.final_tokens for path in Path(spec).glob("plan*.json")}
    elif Path(spec).is_file():
        main = Plan.load(spec)
        plan, own = main.rescaled(budget), {main.expected.final_tokens}
    else:
        raise ConfigError(
            "expected plans to use instead of a search: a name of the package, such as "
            f"eos-miniature, the folder of a run, or a plan.json; found {spec!r}"
        )
    if budget in own:
        return plan
    nearest = min(own, key=lambda x: max(x / budget, budget / x))
    return plan.model_copy(update={"provenance": {SEARCHED_AT: nearest}})


def rows_of(context: Context, study: str) -> list[PlanRow]:
    """Make the rows of a study from the plans that were found."""
    spec, scope = STUDIES[study], context.scope
    plans = {name: context.plan(name) for name in spec.searches(scope)}
    return spec.rows(StudyInputs(scope, plans, context.info.target))


def make_answers(context: Context, on_progress: OnProgress, *, study: str, family: str) -> int:
    """Let every plan of a study answer the questions of a family; count the new answers."""
    counts: list[int] = []
    scope = STUDIES[study].scope(context.scope)

    def watch(done: int, total: int) -> None:
        counts.append(done)
        on_progress(done, total)

    evaluate(
        context.backbone,
        {run_name(row.plan): canonical(row.plan) for row in rows_of(context, study)},
        out=context.answers_folder(scope, family),
        task=f"{context.task.name}:{family}",
        limit=scope.limit,
        seed=scope.seed,
        batch_size=scope.batch_size,
        processor=context.answerer.processor,
        watch=watch,
    )
    return counts[-1] - counts[0]


def make_study_file(context: Context, _: OnProgress, *, study: str, commands: list[str]) -> None:
    """Put the answers to all families together."""
    spec = STUDIES[study]
    rows = [
        RowSpec(row.name, run_name(row.plan), row.method, row.searched, row.factors, row.plan)
        for row in rows_of(context, study)
    ]
    scope = spec.scope(context.scope)
    folders = [context.answers_folder(scope, family) for family in context.task.families]
    made = make_study(
        folders, rows, name=study, title=spec.title, labels=spec.labels, commands=commands
    )
    made.save(context.folder / "studies" / f"{study}.json")


def make_trajectory(context: Context, _: OnProgress) -> None:
    """Read the course of the paper's search and the stages of the default one."""
    scope = context.scope
    descent = f"paper@{descent_budget(scope)}"
    plans = {budget: context.plan(default_search(scope, budget)) for budget in scope.budgets}
    names = (descent, *(default_search(scope, budget) for budget in scope.budgets))
    found = read_trajectory(context.run_folder(descent), plans, searches=names)
    found.save(context.folder / "trajectory.json")


def make_examples_file(context: Context, _: OnProgress, *, count: int) -> None:
    """Observe the found plans on the first questions of every family."""
    scope = context.scope
    found = make_examples(
        context.answerer,
        context.task,
        {x: (f"eos@{x}", context.plan(default_search(scope, x))) for x in scope.budgets},
        split=DEFAULT_SPLIT,
        seed=scope.seed,
        count=count,
    )
    found.save(context.folder / "examples.json")


def make_verify(context: Context, _: OnProgress) -> None:
    """Verify the operator at its corners."""
    verify().save(context.folder / "verify.json")
