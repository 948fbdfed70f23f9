"""Search: find Θ and plans for a frozen backbone; both methods, from open folder to saved plan.

`descend` is the paper's gradient descent over Θ (Sec. 2.4-2.6); what it calls is a pure function of
the step or a file of the run directory. Rerun to resume: it ends with the same Θ.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from eos.data.samples import Source
from eos.data.settings import DataConfig
from eos.models.backbone import Backbone
from eos.models.processor import Processor
from eos.runs.lock import locked
from eos.runs.processes import Processes, stoppable
from eos.searching.explore import Found
from eos.searching.gradients import find_gradients
from eos.searching.measure import Gap, measure_gaps, raced_loss
from eos.searching.opening import open_run, pick_sources
from eos.searching.plan_to_theta import theta_of
from eos.searching.planner import Search, find_plans, open_search
from eos.searching.result import SearchResult
from eos.searching.run import (
    Run,
    Watch,
    check_finite,
    count_skipped,
    keep_step,
    logged,
    note_skipped,
    note_step,
)
from eos.searching.schedule import (
    drawn_budget,
    learning_rate,
    set_temperatures,
    sharpen,
    total_turns,
    turn_at,
)
from eos.searching.settings import SearchConfig
from eos.space.plan import Plan
from eos.space.theta import Theta


def search(
    backbone: Backbone,
    data: Source | DataConfig,
    config: SearchConfig | None = None,
    *,
    validation: Source | DataConfig | None = None,
    processor: Processor | None = None,
    out: str | Path | None = None,
    watch: Watch | None = None,
) -> SearchResult:
    """Search where, how much and how to reduce visual tokens on a frozen backbone.

    >>> import eos
    >>> backbone, data = eos.load_backbone("miniature"), eos.WorldData(families=("digit",))
    >>> short = {"method": "random", "passes": 1, "batch": 2, "validation": {"samples": 2}}
    >>> found = eos.search(backbone, data, eos.SearchConfig(budget=64, **short))
    >>> found.plan_at(32).expected.final_tokens
    32

    Args:
        backbone: the model.
        data: what to learn from: a source, or where to find one.
        config: everything else; its own ``backbone`` and ``data`` are for the command line.
        validation: what to measure on; by default as the configuration says.
        processor: of a model that was not loaded from a name or a folder.
        out: the run directory, from which an interrupted search resumes; None keeps nothing.
        watch: called after every step with the search's status.
    """
    config = config or SearchConfig()
    sources = pick_sources(data, validation, config)
    with TemporaryDirectory() as nowhere, torch.random.fork_rng():
        folder = Path(nowhere if out is None else out)
        with locked(folder, main=Processes().main):
            if config.method != "paper":
                return _plan(
                    open_search(
                        backbone, sources, config, processor=processor, folder=folder, watch=watch
                    )
                )
            run = open_run(
                backbone, sources, config, processor=processor, folder=folder, watch=watch
            )
            with stoppable() as run.stopping:
                descend(run)
            run.trackers.close()
            return _answer(run)


def descend(run: Run) -> None:
    """Minimise Eq. 13 over Θ: start after start if several race, then with the best of them."""
    config, state = run.config, run.state
    while state.done < total_turns(config):
        turn = turn_at(config, state.done, winner=state.winner)
        start = state.starts[turn.start]
        torch.manual_seed(config.seed + turn.step)  # whatever is random follows from the step
        set_temperatures(start.theta, config, step=turn.step)
        batch = run.reader.batch(
            turn.step,
            seed=config.seed,
            size=config.batch,
            slots=run.processes.slots(config.batch),
            at_once=config.micro_batch or 0,
        )
        found = find_gradients(
            run.backbone,
            start.theta,
            config=config,
            budget=drawn_budget(config, turn.step),
            reader=run.reader,
            batch=batch,
            processes=run.processes,
            stop=run.stopping.is_set(),
            apart=logged(config, turn),
        )
        check_finite(run, found, batch, turn)
        limit = float("inf") if config.clip is None else config.clip
        norm = torch.nn.utils.clip_grad_norm_(start.theta.parameters(), limit)
        note_step(run, turn, found, norm=float(norm))
        note_skipped(run.unused, state.done, batch.skipped)
        start.optimizer.param_groups[0]["lr"] = learning_rate(config, turn.step)
        start.optimizer.step()
        state.done += 1
        if turn.step + 1 == config.race_steps:
            start.loss = _validated(run, start.theta)
        sharpen(start.theta, config, step=turn.step)
        keep_step(run, found)


def _validated(run: Run, theta: Theta) -> float:
    """Measure a start's validation loss; all processes use the main one's."""
    reader, batch = run.validation_reader, run.validation_batch
    loss = raced_loss(theta, run.config, run.backbone, reader=reader, batch=batch)
    return run.processes.of_main([loss])[0]


def _answer(run: Run) -> SearchResult:
    """Turn Θ into a plan, measure what that costs, and write both; a finished run is read."""
    config, start = run.config, run.config.names[run.state.winner]
    theta, path = run.state.starts[run.state.winner].theta, run.folder / "plan.json"
    set_temperatures(theta, config, step=config.steps - 1)
    finished = path.exists()
    if finished:
        plan = Plan.load(path)
        found = plan.provenance.get("search", {}).get("gaps", [])
        gaps = [Gap.model_validate(gap) for gap in found]
    else:
        plan = Plan.from_theta(theta, budget=config.budget)
        reader, batch = run.validation_reader, run.validation_batch
        gaps = measure_gaps(theta, config, run.backbone, reader=reader, batch=batch)
        origin: dict[str, Any] = {"start": start, "steps": config.steps, "seed": config.seed}
        origin |= {"facts": run.state.facts, "gaps": [gap.model_dump() for gap in gaps]}
        plan = plan.model_copy(update={"provenance": {"search": origin}})
    run.processes.wait()
    if run.processes.main and not finished:
        theta.save(run.folder / "theta.json")
        plan.save(path)
    plans = {budget: plan.rescaled(budget) for budget in config.all_budgets}
    skipped = count_skipped(run.folder)
    return SearchResult(theta, plan, plans, start, tuple(gaps), skipped=skipped)


def _plan(search: Search) -> SearchResult:
    """Search plans as all methods but the paper's do, and write them."""
    config, found = search.config, find_plans(search)
    plans = {
        budget: own.best.plan.model_copy(update={"provenance": _provenance(search, own)})
        for budget, own in found.items()
    }
    plan = plans[config.budget]
    theta = theta_of(plan)
    if search.processes.main:
        for budget, own in plans.items():
            own.save(search.folder / f"plan-{budget}.json")
        theta.save(search.folder / "theta.json")
        plan.save(search.folder / "plan.json")
    search.processes.wait()
    stages = {budget: own.stages for budget, own in found.items()}
    skipped = count_skipped(search.folder)
    return SearchResult(theta, plan, plans, config.method, stages=stages, skipped=skipped)


def _provenance(search: Search, found: Found) -> dict[str, Any]:
    stages = [stage.model_dump(mode="json") for stage in found.stages]
    origin = {"method": search.config.method, "seed": search.config.seed}
    return {"search": {**origin, "facts": search.judge.facts, "stages": stages}}
