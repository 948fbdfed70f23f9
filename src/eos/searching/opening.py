"""Opening: assemble a run of the descent, and restore its state from the folder."""

from pathlib import Path

import torch

from eos.data.batches import Reader
from eos.data.order import held_out
from eos.data.samples import Source, Subset
from eos.data.settings import DataConfig, WorldData
from eos.data.sources import open_source
from eos.errors import ConfigError
from eos.models.backbone import Backbone
from eos.models.processor import Processor, fingerprint, load_processor
from eos.models.sharding import shard
from eos.runs.journal import Journal
from eos.runs.processes import Processes
from eos.searching.folder import StartState, State, load_state, prepare
from eos.searching.run import Run, Watch, logged, note_skipped, skipped_journal
from eos.searching.schedule import first_theta, lengthen, steps_of, turn_at
from eos.searching.settings import SearchConfig
from eos.searching.trackers import Trackers


def open_run(
    backbone: Backbone,
    sources: tuple[Source, Source],
    config: SearchConfig,
    *,
    processor: Processor | None,
    folder: Path,
    watch: Watch | None,
) -> Run:
    """Assemble what a run needs, and restore what its folder holds."""
    config = config.fitted_to(backbone)
    processes = Processes()
    processes.slots(config.batch)
    if processes.sharding:
        shard(backbone.model, processes=processes.count, device=processes.device)
    processor = processor or load_processor(backbone.model)
    rest = (processor, config.answers, config.max_text_tokens)
    reader, validation_reader = (Reader(source, *rest) for source in sources)
    validation_batch = validation_reader.first(config.validation.samples, at_once=config.at_once)
    tokens = validation_reader.visual_tokens(backbone, validation_batch)
    facts = {"backbone": fingerprint(backbone.model), "validation": sources[1].describe()}
    facts["data"] = sources[0].describe()
    state = _first_state(backbone, config, facts, visual_tokens=tokens)
    if processes.main:
        prepare(folder, config, backbone, sites=len(state.starts[0].theta.sites))
    processes.wait()
    load_state(folder, state)
    processes.wait()
    config = _lengthened(config, state)
    run = Run(
        backbone,
        config,
        reader,
        validation_reader,
        validation_batch,
        processes,
        folder,
        state,
        Journal(folder / "history.jsonl"),
        skipped_journal(folder, processes),
        Trackers(config.trackers if processes.main else (), folder, config.model_dump(mode="json")),
        watch,
    )
    _rewind(run)
    note_skipped(run.unused, -1, validation_batch.skipped)
    run.unused.flush()
    return run


def pick_sources(
    data: Source | DataConfig, validation: Source | DataConfig | None, config: SearchConfig
) -> tuple[Source, Source]:
    """Open what to learn from and what to validate with; they share no sample."""
    source = open_source(data)
    chosen = config.validation.data if validation is None else validation
    if chosen is None and isinstance(data, WorldData):
        chosen = data.model_copy(update={"split": "validation"})
    if chosen is not None:
        return source, open_source(chosen)
    learnt, held = held_out(len(source), config.held_out_samples, seed=config.seed)
    return Subset(source, learnt, f"all but {len(held)}"), Subset(source, held, f"{len(held)}")


def _rewind(run: Run) -> None:
    """Cut the journals to the steps of the checkpoint."""
    run.unused.rewind(run.state.done)
    if not run.processes.main:
        return
    turns = run.history.rewind(run.state.done)
    expected = [
        done
        for done in range(run.state.done)
        if logged(run.config, turn_at(run.config, done, winner=run.state.winner))
    ]
    if not set(expected) <= set(turns):
        raise ConfigError(
            f"expected {len(expected)} lines of the steps done in {run.history.path}, found "
            f"{len(turns)}: some are lost. Name another folder to begin anew"
        )


def _first_state(
    backbone: Backbone, config: SearchConfig, facts: dict[str, str], *, visual_tokens: int
) -> State:
    """Begin: every start's Θ and optimiser, for as many visual tokens as the first image has."""
    starts = []
    for start in range(len(config.names)):
        theta = first_theta(
            config,
            start,
            num_layers=backbone.num_layers,
            visual_tokens=visual_tokens,
            deployment=config.deployment(backbone),
        )
        optimizer = torch.optim.AdamW(
            theta.weights.values(), lr=config.lr, weight_decay=config.weight_decay
        )
        starts.append(StartState(theta, optimizer))
    return State(starts, facts, steps=config.steps, race_steps=config.race_steps)


def _lengthened(config: SearchConfig, state: State) -> SearchConfig:
    """Go on with more steps than a run began with: its race stays, schedules are the new ones."""
    raced = state.race_steps
    before = config.model_copy(update={"steps": state.steps, "race": raced / state.steps})
    if raced != config.race_steps:
        config = config.model_copy(update={"race": raced / config.steps})
    if state.steps != config.steps:
        for start, own in enumerate(state.starts):
            step = steps_of(before, start, done=state.done, winner=state.winner)
            lengthen(own.theta, before, config, step=step)
    state.steps = config.steps
    return config
