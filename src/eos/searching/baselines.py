"""Baselines: random search and Optuna's TPE over the same space, for the same compute.

Both draw plans, measure each on all validation samples, and keep the best until the compute is
spent.
"""

from random import Random
from typing import Any

from eos.errors import ConfigError
from eos.searching.explore import Found, measured, stage
from eos.searching.judge import Judge
from eos.searching.moves import sort_counts
from eos.searching.race import Entrant
from eos.searching.space import Space
from eos.space.plan import Plan
from eos.space.step import Operator, Step

WORST = 1.0  # disagreement of a proposal that no plan can be made of
MAX_REPEATS = 200  # proposals in a row without a new plan after which TPE is stopped


def search_randomly(judge: Judge, space: Space, *, pieces: int, passes: float, seed: int) -> Found:
    """Draw plans until ``passes`` are spent.

    Every plan counts as measured on all samples, and the best is the best of all of them; one that
    cannot become it any more is not measured further, which saves time.
    """
    chance, start = Random(f"eos {seed} random {space.budget}"), judge.passes
    best: Entrant | None = None
    stages, tried = [], 0
    while best is None or judge.passes - start < passes:
        plan = space.random_plan(chance)
        judge.count([plan], range(pieces))
        tried += 1
        if best is not None and _lost(judge, plan, best, pieces=pieces):
            continue
        new = measured(judge, plan, range(pieces))
        if best is None or new.mean < best.mean:
            best = new
            stages.append(stage("random", judge, best, tried=tried))
    return Found(best, (*stages, stage("random", judge, best, tried=tried)))


def _lost(judge: Judge, plan: Plan, best: Entrant, *, pieces: int) -> bool:
    """Measure a plan until its disagreement so far exceeds that of ``best`` on all samples.

    No sample's disagreement is negative: more samples cannot lower the sum.
    """
    limit, at_once = float(best.values.sum()), judge.processes.count
    return any(
        float(judge.disagreement([plan], range(stop)).sum()) > limit
        for stop in range(at_once, pieces, at_once)
    )


def search_tpe(judge: Judge, space: Space, *, pieces: int, passes: float, seed: int) -> Found:
    """Let Optuna's tree-structured Parzen estimator propose plans until ``passes`` are spent."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "expected the package optuna for method 'tpe', found none; install it with "
            "`pip install optuna`"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    start, best, stages = judge.passes, None, []
    tried = repeats = 0
    while best is None or (judge.passes - start < passes and repeats < MAX_REPEATS):
        trial, before = study.ask(), judge.passes
        plan = propose(trial, space)
        if plan is None:
            study.tell(trial, WORST)
            repeats += 1
            continue
        new = measured(judge, plan, range(pieces))
        study.tell(trial, new.mean)
        repeats = repeats + 1 if judge.passes == before else 0
        tried += 1
        if best is None or new.mean < best.mean:
            best = new
            stages.append(stage("tpe", judge, best, tried=tried))
    return Found(best, (*stages, stage("tpe", judge, best, tried=tried)))


def propose(trial: Any, space: Space) -> Plan | None:
    """Let a trial choose a plan, variable by variable; None if what it chose meets no limit."""
    steps: dict[int, Step] = {}
    left = 1.0
    names = sorted({name for names in space.scorers.values() for name in names})
    for slot in range(space.max_layers):
        layer = trial.suggest_int(f"layer{slot}", space.sites[0], space.sites[-1])
        left *= trial.suggest_float(f"share{slot}", 0.0, 1.0)
        score = trial.suggest_categorical(f"score{slot}", names)
        if score not in space.scorers[layer]:
            score = space.scorers[layer][0]
        span = space.budget / space.visual_tokens
        keep = round(space.visual_tokens * span ** (1.0 - left))
        operator = _operator(trial, slot, space)
        steps[layer] = Step(layer=layer, keep=keep, score=score, operator=operator)
    return space.plan(sort_counts(steps.values()))


def _operator(trial: Any, slot: int, space: Space) -> Operator:
    def share(name: str) -> float:
        return float(trial.suggest_float(f"{name}{slot}", 0.0, 1.0))

    prunes = not space.operators or trial.suggest_categorical(f"prune{slot}", [True, False])
    mass = 0.0
    if space.mass and trial.suggest_categorical(f"moves_mass{slot}", [True, False]):
        mass = share("mass")
    if prunes and not mass:
        return Operator()
    shape = {"tau": trial.suggest_float(f"tau{slot}", 0.01, 10.0, log=True), "mass": mass}
    shape["theta"] = trial.suggest_float(f"theta{slot}", -1.0, 1.0)
    if prunes:
        return Operator(**shape)
    return Operator(gamma=share("gamma"), rho=share("rho"), nu=share("nu"), **shape)
