"""Preview: what a search will do and cost, from a few forward passes; nothing is written.

Constraints and costs of plans are exact. Passes are counted as a search counts them, where a race
or a round of moves may end earlier; seconds follow from passes timed on the first samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from time import perf_counter

import psutil  # type: ignore[import-untyped]
import torch

from eos.data.batches import Reader
from eos.data.samples import Source
from eos.errors import ConfigError
from eos.models.backbone import Backbone
from eos.models.devices import device_of
from eos.models.processor import Processor, load_processor, model_name
from eos.runs.processes import Processes
from eos.searching.curves import screening_count
from eos.searching.explore import (
    BEGINNINGS,
    CAUTIONS,
    FINALISTS,
    FIRST,
    REFERENCES,
    STARTS,
)
from eos.searching.judge import CACHED, Judge, flops_share, passes_for
from eos.searching.moves import MOVES, neighbours
from eos.searching.objective import default_flops
from eos.searching.planner import budget_space, scorers_by_site
from eos.searching.profile import SCREENED, dense_cells, one_step_plan
from eos.searching.race import rungs
from eos.searching.refine import descent_passes
from eos.searching.schedule import first_theta, total_turns
from eos.searching.settings import SearchConfig
from eos.searching.space import Space
from eos.space.plan import Plan
from eos.space.starts import default_layers
from eos.space.step import Step

TIMED = 4  # plans whose passes are timed, after one that is not


@dataclass(frozen=True)
class BudgetPreview:
    """One budget of a search.

    Attributes:
        budget: final visual tokens.
        max_flops: limit, relative to the full model.
        max_layers: steps of a plan at most.
        sites: where a plan may reduce.
        start: a plan within the limits; with ``method: paper``, that of Θ as it starts.
        passes: expected compute, in passes of one sample through the full decoder.
    """

    budget: int
    max_flops: float
    max_layers: int
    sites: tuple[int, ...]
    start: Plan
    passes: float


@dataclass(frozen=True)
class SearchPreview:
    """A search before it begins.

    Attributes:
        train, validation: the data, in the words of their sources.
        budgets: largest first.
        profile_passes: of the profile, which all budgets share.
        pass_seconds: of one sample through the full decoder, measured.
        weights_bytes: of the model.
        process_bytes: of this process, after the passes that were timed, and
        accelerator_bytes: of the device at most; 0 on the CPU.
        free_bytes: of memory that is left.
        cache_bytes: of the full model's answers, which are kept up to that.
    """

    backbone: str
    num_layers: int
    visual_tokens: int
    train: str
    validation: str
    budgets: tuple[BudgetPreview, ...]
    profile_passes: float
    pass_seconds: float
    weights_bytes: int
    process_bytes: int
    accelerator_bytes: int
    free_bytes: int
    cache_bytes: int = CACHED

    @property
    def passes(self) -> float:
        """Expected compute of all budgets."""
        return self.profile_passes + sum(own.passes for own in self.budgets)

    @property
    def seconds(self) -> float:
        """Expected time."""
        return self.passes * self.pass_seconds


def preview_search(
    backbone: Backbone,
    sources: tuple[Source, Source],
    config: SearchConfig,
    *,
    processor: Processor | None = None,
) -> SearchPreview:
    """Say what a search would do on a backbone and data, and about how long it would take."""
    config = config.fitted_to(backbone)
    processor = processor or load_processor(backbone.model)
    reader = Reader(sources[1], processor, config.answers, config.max_text_tokens)
    batch = reader.first(config.at_once, at_once=config.at_once)
    tokens = reader.visual_tokens(backbone, batch)
    judge = Judge(backbone, reader, batch, Processes(), config.objective.text_length)
    paper = config.method == "paper"
    budgets = config.all_budgets[:1] if paper else config.all_budgets
    describe = _descent if paper else _planned
    found = [describe(config, backbone, budget, visual_tokens=tokens) for budget in budgets]
    device = device_of(backbone.model)
    seconds = pass_seconds(judge, scorers_by_site(backbone.num_layers, config), tokens)
    weights = [*backbone.model.parameters(), *backbone.model.buffers()]
    return SearchPreview(
        backbone=model_name(backbone.model),
        num_layers=backbone.num_layers,
        visual_tokens=tokens,
        train=sources[0].describe(),
        validation=sources[1].describe(),
        budgets=tuple(found),
        profile_passes=profile_passes(judge, config, visual_tokens=tokens),
        pass_seconds=seconds,
        weights_bytes=sum(weight.nbytes for weight in weights),
        process_bytes=psutil.Process().memory_info().rss,
        accelerator_bytes=_peak(device),
        free_bytes=psutil.virtual_memory().available,
        cache_bytes=0 if paper else CACHED,
    )


def pass_seconds(judge: Judge, scorers: dict[int, tuple[str, ...]], visual_tokens: int) -> float:
    """Time plans as a search measures them; seconds of one sample through the full decoder."""
    keep, sites = screening_count(visual_tokens), sorted(scorers)
    chosen = sites[:: max(1, len(sites) // TIMED)][: TIMED + 1]
    cells = [(site, scorers[site][0], keep) for site in chosen]
    first, *others = [one_step_plan(judge, x, visual_tokens=visual_tokens) for x in cells]
    judge.disagreement([first], [0])
    before, start = judge.passes, perf_counter()
    for plan in others or [first.rescaled(max(1, keep // 2))]:
        judge.disagreement([plan], [0])
    return (perf_counter() - start) / (judge.passes - before)


def profile_passes(judge: Judge, config: SearchConfig, *, visual_tokens: int) -> float:
    """Count the passes of a profile; 0 if none is measured."""
    if config.method != "eos" or config.explore.profile is not None:
        return 0.0
    scorers = scorers_by_site(judge.backbone.num_layers, config)
    at_once, (deciding, _) = config.at_once, config.judging_pieces
    pieces = min(ceil(config.explore.profile_samples / at_once), deciding)
    keep, screened = screening_count(visual_tokens), min(SCREENED, pieces)
    best = {site: names[: config.explore.best_scorers] for site, names in scorers.items()}
    dense = dense_cells(best, visual_tokens=visual_tokens)
    all_names = [(site, name, keep) for site, names in scorers.items() for name in names]

    def passes(cells: Sequence[tuple[int, str, int]]) -> float:
        return passes_for([one_step_plan(judge, x, visual_tokens=visual_tokens) for x in cells])

    rest = passes([cell for cell in dense if cell[2] != keep])
    counted = screened * (passes(all_names) + rest) + (pieces - screened) * passes(dense)
    return at_once * (counted + pieces)


def _planned(
    config: SearchConfig, backbone: Backbone, budget: int, *, visual_tokens: int
) -> BudgetPreview:
    """Describe a budget of all methods but the paper's."""
    space = budget_space(config, backbone, budget, visual_tokens=visual_tokens)
    start = _first_plan(space)
    passes = exploring_passes(config, space, start) if config.method == "eos" else config.passes
    limits = (space.max_flops, space.max_layers, tuple(space.sites))
    return BudgetPreview(budget, *limits, start, passes)


def _descent(
    config: SearchConfig, backbone: Backbone, budget: int, *, visual_tokens: int
) -> BudgetPreview:
    """Describe the paper's descent: a forward and a backward pass (two), and the full model's."""
    sizes = {"num_layers": backbone.num_layers, "visual_tokens": visual_tokens}
    own = config.deployment(backbone)
    theta = first_theta(config, 0, **sizes, deployment=own)
    limit = config.objective.flops_limit(visual_tokens, backbone.num_layers, backbone.dims)
    if limit is None:
        text = config.objective.text_length
        limit = default_flops(theta, config.budget, dims=backbone.dims, text_tokens=text)
    start = Plan.from_theta(theta, budget=config.budget)
    each = bool(config.objective.align_weight) + 3.0 * flops_share(start, after=-1)
    passes = total_turns(config) * config.batch * each
    passes += config.validation.samples * (1 + len(config.all_budgets))
    return BudgetPreview(config.budget, limit, own.max_layers, tuple(theta.sites), start, passes)


def exploring_passes(config: SearchConfig, space: Space, start: Plan) -> float:
    """Count the passes of race, moves, gradient and confirmation, every plan as costly as one."""
    options, at_once, share = config.explore, config.at_once, flops_share(start, after=-1)
    pieces, confirming = config.judging_pieces
    deciding = ceil(options.focus * pieces)
    rounds = rungs(deciding, first=ceil(deciding / FIRST))
    operators = STARTS if space.operators else 1
    field = (len(CAUTIONS) + options.paths + BEGINNINGS) * operators
    counted = race_pieces(field, rounds, last=FINALISTS)
    around = [neighbours(start, space, kind=kind, ranking=space.scorers) for kind in MOVES]
    later = rounds[min(1, len(rounds) - 1) :]
    counted += options.moves * sum(race_pieces(len(own), later, last=2) for own in around)
    counted += REFERENCES * pieces if options.focus < 1 else 0
    refined = options.gradient and space.operators
    counted += (1 + bool(options.moves) + refined) * confirming + (deciding if refined else 0)
    descent = descent_passes(start, config) if refined else 0.0
    return at_once * (counted * share + pieces + deciding + confirming) + descent


def race_pieces(field: int, rounds: Sequence[int], *, last: int) -> int:
    """Count the pieces that a race of so many plans measures; see `eos.searching.race.race`.

    >>> race_pieces(8, [1, 2, 4], last=2)
    16
    """
    total, before = 0, 0
    for pieces in rounds:
        total += field * (pieces - before)
        field, before = min(field, max(last, ceil(field / 2))), pieces
    return total


def _first_plan(space: Space) -> Plan:
    """Make a plan within the limits: pruning at the paper's layers, or at the first site alone."""
    layers = [x for x in default_layers(space.num_layers) if x in space.scorers]
    layers = layers[-space.max_layers :] or space.sites[:1]
    shares = [(place + 1) / len(layers) for place in range(len(layers))]
    kept = space.budget / space.visual_tokens
    steps = [
        Step(layer=x, keep=round(space.visual_tokens * kept**share), score=space.scorers[x][0])
        for x, share in zip(layers, shares, strict=True)
    ]
    site = space.sites[0]
    alone = Step(layer=site, keep=space.budget, score=space.scorers[site][0])
    found = space.plan(steps) or space.plan([alone])
    if found is None:
        raise ConfigError(space.too_tight)
    return found


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
