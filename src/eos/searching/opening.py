"""Opening: assemble a run of the descent, and restore its state from the folder."""

from pathlib import Path
from typing import Any

import torch

from eos.data.batches import Batch, Reader
from eos.data.order import held_out
from eos.data.samples import Source, Subset
from eos.data.settings import DataConfig, WorldData
from eos.data.sources import open_source
from eos.errors import ConfigError
from eos.models.backbone import Backbone
from eos.models.devices import device_of
from eos.models.processor import Processor, fingerprint, load_processor
from eos.models.sharding import shard
from eos.runs.environment import environment
from eos.runs.journal import Journal
from eos.runs.processes import Processes
from eos.searching.folder import Racer, State, load_state, prepare
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
    at_once = config.at_once
    validation_batch = validation_reader.first(config.validation.samples, at_once=at_once)
    state = _first_state(
        backbone, config, validation_reader=validation_reader, validation_batch=validation_batch
    )
    state.facts["data"] = sources[0].describe()
    if processes.main:
        sites = len(state.racers[0].theta.sites)
        prepare(folder, config, environment=describe_environment(backbone, config), sites=sites)
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
    backbone: Backbone, config: SearchConfig, *, validation_reader: Reader, validation_batch: Batch
) -> State:
    """Begin: every start's Θ and optimiser, for as many visual tokens as the first image has."""
    inputs, _ = validation_reader.inputs(validation_batch.answered[:1])
    tokens = int(backbone.visual_mask(inputs["input_ids"]).sum())
    racers = []
    for start in range(len(config.names)):
        theta = first_theta(
            config,
            start,
            num_layers=backbone.num_layers,
            visual_tokens=tokens,
            deployment=config.deployment(backbone),
        )
        optimizer = torch.optim.AdamW(
            theta.weights.values(), lr=config.lr, weight_decay=config.weight_decay
        )
        racers.append(Racer(theta, optimizer))
    facts = {
        "backbone": fingerprint(backbone.model),
        "validation": validation_reader.source.describe(),
    }
    return State(racers, facts, steps=config.steps, race_steps=config.race_steps)


def _lengthened(config: SearchConfig, state: State) -> SearchConfig:
    """Go on with more steps than a run began with: its race stays, schedules are the new ones."""
    raced = state.race_steps
    before = config.model_copy(update={"steps": state.steps, "race": raced / state.steps})
    if raced != config.race_steps:
        config = config.model_copy(update={"race": raced / config.steps})
    if state.steps != config.steps:
        for start, racer in enumerate(state.racers):
            step = steps_of(before, start, done=state.done, winner=state.winner)
            lengthen(racer.theta, before, config, step=step)
    state.steps = config.steps
    return config


def describe_environment(backbone: Backbone, config: SearchConfig) -> dict[str, Any]:
    """Note versions, device and precision of a search."""
    model = backbone.model
    dtype = str(model.dtype).removeprefix("torch.")
    return environment(seed=config.seed, device=str(device_of(model)), dtype=dtype)
