"""Planner: a search for plans on a run's folder; profile, plans and measurements are its files.

``trials.jsonl`` holds every measurement. The same command reads them instead of measuring again, so
that an interrupted search resumes and ends with the same plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from eos.data.batches import Reader
from eos.data.samples import Source
from eos.errors import ConfigError, DataError
from eos.methods.registry import SCORERS
from eos.models.backbone import Backbone
from eos.models.processor import Processor, fingerprint, load_processor, model_name
from eos.models.sharding import shard
from eos.runs.journal import Journal
from eos.runs.processes import Processes
from eos.searching.baselines import search_randomly, search_tpe
from eos.searching.curves import Profile
from eos.searching.explore import Found, candidates, confirm, explore, references
from eos.searching.focus import focused
from eos.searching.folder import prepare
from eos.searching.judge import Judge
from eos.searching.moves import pruning
from eos.searching.profile import measure_profile
from eos.searching.refine import refine
from eos.searching.run import (
    AT_LEAST,
    MOST_SKIPPED,
    Status,
    Watch,
    note_skipped,
    skipped_journal,
)
from eos.searching.settings import SearchConfig
from eos.searching.space import Space
from eos.space.mixture import components
from eos.space.starts import default_layers

COMPARED = "sparsevlm-v2"  # the recipe whose FLOPs, at the same budget, are the default limit
# scorers of the default space: they work in every model family. Listed, since a profile and the
# draws of a search depend on them and on their order: a new method changes neither
SEARCHED = (
    *("text-raters", "last-query", "next-last-query", "all-text", "corrected-raters"),
    *("key-norm", "diversity", "duplication", "dissimilarity"),
)


@dataclass
class Search:
    """A search for plans in progress: the model, the samples, what was measured.

    The first ``pieces`` of the judge's samples decide between plans, the others confirm.
    """

    backbone: Backbone
    config: SearchConfig
    judge: Judge
    pieces: int
    train: Reader
    processes: Processes
    folder: Path
    visual_tokens: int
    unused: Journal
    watch: Watch | None = None

    def show(self, stage: str, done: int, total: int) -> None:
        """Show which stage is under way, and how far it is."""
        if self.watch is not None and self.processes.main:
            self.watch(Status(done=done, total=total, start=stage))


def open_search(
    backbone: Backbone,
    sources: tuple[Source, Source],
    config: SearchConfig,
    *,
    processor: Processor | None,
    folder: Path,
    watch: Watch | None = None,
) -> Search:
    """Check the folder, read the validation samples, and take up what was measured before."""
    config, processes = config.fitted_to(backbone), Processes()
    if processes.sharding:
        shard(backbone.model, processes=processes.count, device=processes.device)
    processor = processor or load_processor(backbone.model)
    rest = (processor, config.answers, config.max_text_tokens)
    train, validation = (Reader(source, *rest) for source in sources)
    at_once, (deciding, confirming) = config.at_once, config.judging_pieces
    batch = validation.first((deciding + confirming) * at_once, at_once=at_once)
    if len(batch.skipped) > MOST_SKIPPED * max(batch.tried, AT_LEAST):
        reasons = " | ".join(skipped.reason for skipped in batch.skipped[:3])
        raise DataError(
            f"expected at most {MOST_SKIPPED:.0%} unusable samples, found {len(batch.skipped)} of "
            f"{batch.tried}, such as: {reasons}"
        )
    tokens = validation.visual_tokens(backbone, batch)
    if processes.main:
        prepare(folder, config, backbone, sites=backbone.num_layers)
    processes.wait()
    unused = skipped_journal(folder, processes)
    unused.rewind(0)
    note_skipped(unused, 0, batch.skipped)
    unused.flush()
    facts = {"backbone": fingerprint(backbone.model), "validation": validation.source.describe()}
    trials = Journal(folder / "trials.jsonl")
    judge = Judge(
        backbone, validation, batch, processes, config.objective.text_length, trials, facts=facts
    )
    processes.wait()
    pieces = min(deciding, len(judge.pieces))
    return Search(backbone, config, judge, pieces, train, processes, folder, tokens, unused, watch)


def find_plans(search: Search) -> dict[int, Found]:
    """Search a plan for every budget, the largest first."""
    config = search.config
    profile = find_profile(search) if config.method == "eos" else None
    measured = search.judge.mark()
    found: dict[int, Found] = {}
    budgets = config.all_budgets
    for done, budget in enumerate(budgets):
        search.show(f"{config.method}, {budget} tokens", done, len(budgets))
        search.judge.restart(measured)
        space = budget_space(config, search.backbone, budget, visual_tokens=search.visual_tokens)
        found[budget] = _found(search, space, profile)
    return found


def _found(search: Search, space: Space, profile: Profile | None) -> Found:
    config, judge = search.config, search.judge
    if profile is None:
        draw = {"random": search_randomly, "tpe": search_tpe}[config.method]
        return draw(judge, space, pieces=search.pieces, passes=config.passes, seed=config.seed)
    options = config.explore
    starts = candidates(profile, space, paths=options.paths, seed=config.seed)
    deciding = focused(
        judge,
        references(starts),
        pieces=search.pieces,
        share=options.focus,
        path=search.folder / f"trials-{space.budget}.jsonl",
        seed=config.seed,
    )
    ranking = {site: profile.ranking(site) for site in profile.sites}
    found = explore(deciding, space, starts, ranking=ranking, moves=options.moves)
    if options.gradient and space.operators:
        search.show(f"gradient, {space.budget} tokens", 0, config.steps)
        found = refine(
            found,
            judge=deciding,
            space=space,
            reader=search.train,
            config=config,
            folder=search.folder / f"gradient-{space.budget}",
            unused=search.unused,
        )
    judge.passes = deciding.passes
    rest = range(search.pieces, len(judge.pieces))
    return confirm(found, judge, rest) if rest and len(found.stages) > 1 else found


def find_profile(search: Search) -> Profile:
    """Read the profile that the configuration names, or measure one into the run's folder."""
    config, judge = search.config, search.judge
    scorers = scorers_by_site(search.backbone.num_layers, config)
    if config.explore.profile is not None:
        profile = Profile.load(config.explore.profile)
        _check_fits(profile, scorers, search)
        judge.passes += profile.passes  # what it took to measure belongs to the search
        return profile
    at_once = judge.batch.at_once or len(judge.batch.answered)
    profile = measure_profile(
        judge,
        scorers,
        visual_tokens=search.visual_tokens,
        pieces=min(ceil(config.explore.profile_samples / at_once), search.pieces),
        best=config.explore.best_scorers,
        operator=pruning(config.mass),
        watch=partial(search.show, "profile"),
    )
    if search.processes.main:
        profile.save(search.folder / "profile.json")
    search.processes.wait()
    return profile


def budget_space(
    config: SearchConfig, backbone: Backbone, budget: int, *, visual_tokens: int
) -> Space:
    """Describe the plans of a budget; FLOPs as limited, or as SparseVLM v2 has at that budget."""
    if not config.k_min <= budget < visual_tokens:
        raise ConfigError(
            f"expected a budget from {config.k_min} to {visual_tokens - 1}, found {budget}"
        )
    sizes = (visual_tokens, backbone.num_layers, backbone.dims)
    limit = config.objective.flops_limit(*sizes, default=f"{COMPARED}@{budget}")
    assert limit is not None
    return Space(
        num_layers=backbone.num_layers,
        visual_tokens=visual_tokens,
        dims=backbone.dims,
        text_tokens=config.objective.text_length,
        budget=budget,
        max_flops=limit,
        max_layers=max(1, int(config.objective.max_layers)),
        scorers=scorers_by_site(backbone.num_layers, config),
        operators=config.operators,
        mass=config.mass,
        backbone=model_name(backbone.model),
    )


def scorers_by_site(num_layers: int, config: SearchConfig) -> dict[int, tuple[str, ...]]:
    """List the scorers of every site; the last layer is none, for nothing attends after it.

    With ``fix_layers`` the sites are these layers.
    """
    names = config.scorers or SEARCHED
    found = dict.fromkeys(range(max(1, num_layers - 1)), names)
    if config.fix_layers:
        fixed = default_layers(num_layers) if config.layers is None else config.layers
        unknown = sorted(set(fixed) - {-1, *found})
        if unknown or not fixed:
            raise ConfigError(f"layers: expected some of -1 to {max(found)}, found {list(fixed)}")
        found = {site: names for site in fixed if site >= 0}
        if -1 not in fixed:
            return dict(sorted(found.items()))
    early = tuple(name for name in names if works_early(name))
    if config.reduces_input and early:
        found[-1] = early
    elif config.reduces_input and config.input_site:
        raise ConfigError(
            f"expected a scorer without text for the site before the decoder; found "
            f"{', '.join(names)}"
        )
    return dict(sorted(found.items()))


def works_early(score: str) -> bool:
    """Whether a score needs nothing of a decoder layer that has run."""
    parts = [SCORERS[name] for name in components(score)]
    return all((x.rows == "none" and not x.needs) or x.ahead for x in parts)


def _check_fits(profile: Profile, scorers: Mapping[int, Any], search: Search) -> None:
    problems, name = [], model_name(search.backbone.model)
    fingerprint = search.judge.facts["backbone"]
    if profile.fingerprint != fingerprint:
        problems.append(
            f"expected a profile of this backbone ({name}, {fingerprint}); found one of "
            f"{profile.backbone}, {profile.fingerprint}"
        )
    if profile.visual_tokens != search.visual_tokens:
        problems.append(
            f"expected a profile of {search.visual_tokens} visual tokens, found "
            f"{profile.visual_tokens}"
        )
    mass = pruning(search.config.mass).mass
    if profile.mass != mass:
        problems.append(
            f"expected a profile with attention mass {mass:g}, found one with {profile.mass:g}; "
            f"measure one, or set mass={str(not search.config.mass).lower()}"
        )
    missing = [site for site in scorers if site not in profile.sites]
    if missing:
        problems.append(f"expected the profile of sites {missing}, found none")
    if problems:
        raise ConfigError("; ".join(problems))
