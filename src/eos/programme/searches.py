"""Searches: which of them a programme runs, by name, and what each changes.

``eos-1@64`` is the default search of seed 1 for 64 tokens; the others are its variants and the
descents of the paper's method.
"""

from dataclasses import dataclass
from functools import partial

from eos.errors import ConfigError
from eos.programme.scope import SHORT, Scope
from eos.searching.files import configs, read_config
from eos.searching.settings import SearchConfig

LAMBDAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
DEFAULT_LAMBDA = 0.1  # of the paper, and of every other descent
DESCENT_BUDGET = 64  # of the descents that are compared
LADDER_BUDGETS = (64, 16)
FIXED_BUDGETS = (192, 64)
SEED_BUDGETS = (64, 32, 16)
CHEAP = "divprune"  # a prior method that reduces before the decoder, so that few FLOPs are left
QUICK_DESCENT = ("steps=12", "batch=4", "micro_batch=4", "validation.samples=16")
NO_MASS = "mass=false"
_BARE = ("explore.moves=0", "explore.gradient=false")
# what each lever adds to the one before it, from plain paths to the default search
LADDER: dict[str, tuple[str, ...]] = {
    "raters": ("scorers=[text-raters]", "operators=false", "input_site=false", NO_MASS, *_BARE),
    "scorers": ("operators=false", "input_site=false", NO_MASS, *_BARE),
    "input": ("operators=false", NO_MASS, *_BARE),
    "operators": (NO_MASS, *_BARE),
    "mass": _BARE,
    "moves": ("explore.gradient=false", "explore.confirm_samples=0"),
}
SELECTIONS: dict[str, tuple[str, ...]] = {
    "rank": ("relaxation.selection=rank",),
    "marginal": ("relaxation.selection=marginal",),
    "rank-band": ("relaxation.selection=rank", "relaxation.band=0.25"),
    "rank-soft": ("relaxation.selection=rank", "relaxation.boundary=soft"),
}


@dataclass(frozen=True)
class SearchSpec:
    """A search of a programme.

    Attributes:
        name: of its plan.
        changes: of the configuration.
        descent: whether it is the paper's search.
        profile: seed of the profile that it starts from; None if it has none, or its own.
        given: spec of a plan that takes its place.
    """

    name: str
    budget: int
    changes: tuple[str, ...] = ()
    descent: bool = False
    profile: int | None = None
    given: str | None = None


def searches(scope: Scope) -> dict[str, SearchSpec]:
    """List every search that a study of the programme may need, by name."""
    found = [spec for seed in scope.seeds for spec in _default(scope, seed)]
    variant, descent = partial(_variant, scope), partial(_variant, scope, descent=True)
    first = scope.seeds[0]
    for budget in budgets_of(scope, FIXED_BUDGETS):
        found.append(variant(f"fixed@{budget}", budget, ("fix_layers=true",), profile=first))
    for budget in cheap_budgets(scope):
        limit, name = (f"objective.max_flops={CHEAP}@{budget}",), cheap_search(scope, budget)
        found.append(variant(name, scope.budgets[-1], limit, profile=first))
    for budget in budgets_of(scope, LADDER_BUDGETS):
        for name, changes in LADDER.items():
            profile = None if NO_MASS in changes else first  # that of the default has mass
            found.append(variant(f"{name}@{budget}", budget, changes, profile=profile))
        found.append(descent(f"paper@{budget}", budget))
    budget = descent_budget(scope)
    for weight in LAMBDAS:
        if weight != DEFAULT_LAMBDA:
            change = (f"objective.align_weight={weight:g}",)
            found.append(descent(f"align-{weight:g}@{budget}", budget, change))
    found.append(descent(f"ce-off@{budget}", budget, ("objective.ce_weight=0",)))
    for name, changes in SELECTIONS.items():
        found.append(descent(f"selection-{name}@{budget}", budget, changes))
    return {spec.name: spec for spec in found}


def budgets_of(scope: Scope, budgets: tuple[int, ...]) -> tuple[int, ...]:
    """Choose those budgets that the programme has; its smallest if it has none of them."""
    return tuple(x for x in budgets if x in scope.budgets) or scope.budgets[-1:]


def default_search(scope: Scope, budget: int) -> str:
    """Name the first default search of a budget."""
    return f"eos-{scope.seeds[0]}@{budget}"


def cheap_budgets(scope: Scope) -> tuple[int, ...]:
    """Choose the tokens of `CHEAP` whose FLOPs leave a choice to plans of the smallest budget."""
    return tuple(x for x in budgets_of(scope, SEED_BUDGETS) if x > scope.budgets[-1])


def cheap_search(scope: Scope, budget: int) -> str:
    """Name the search for the smallest budget at the FLOPs of `CHEAP` with ``budget`` tokens."""
    return f"cheap-{budget}@{scope.budgets[-1]}"


def descent_budget(scope: Scope) -> int:
    """Say for how many tokens the descents that are compared search."""
    return budgets_of(scope, (DESCENT_BUDGET,))[0]


def config_of(scope: Scope, spec: SearchSpec, *, profile: str | None = None) -> SearchConfig:
    """Read the configuration of a search; ``profile`` is the file that it starts from."""
    more = [f"budget={spec.budget}", "budgets=null", *spec.changes]
    if profile is not None:
        more.append(f"explore.profile={profile}")
    if not spec.descent:
        short = SHORT if scope.quick else ()
        return read_config(scope.config, [*short, *scope.changes, *more])
    given = [*(QUICK_DESCENT if scope.quick else ()), *scope.descent]
    return read_config(paper_config(scope), [*shared_changes(scope), *given, *more])


def paper_config(scope: Scope) -> str:
    """Name the configuration of the paper's search."""
    named = scope.paper or f"paper-{scope.config}"
    if scope.paper is None and named not in configs():
        raise ConfigError(
            f"expected a configuration of the paper's search beside {scope.config!r}, found no "
            f"{named!r}; name one with --paper"
        )
    return named


def shared_changes(scope: Scope) -> list[str]:
    """Choose the changes of the default search that are of model and data, for every search."""
    keys = ("backbone", "device_map", "data.")
    return [change for change in scope.changes if change.startswith(keys)]


def seeded(scope: Scope, seed: int) -> tuple[str, ...]:
    """Write a seed as changes; the world draws other questions with another seed."""
    world = read_config(scope.config, scope.changes).data.kind == "world"
    return (f"seed={seed}", *([f"data.seed={seed}"] if world else []))


def _default(scope: Scope, seed: int) -> list[SearchSpec]:
    """The default search of a seed: the first at all budgets, others at three."""
    place = scope.seeds.index(seed)
    given = scope.searches[place] if place < len(scope.searches) else None
    budgets = scope.budgets if place == 0 else budgets_of(scope, SEED_BUDGETS)
    return [
        SearchSpec(f"eos-{seed}@{budget}", budget, seeded(scope, seed), profile=seed, given=given)
        for budget in budgets
    ]


def _variant(
    scope: Scope,
    name: str,
    budget: int,
    changes: tuple[str, ...] = (),
    *,
    profile: int | None = None,
    descent: bool = False,
) -> SearchSpec:
    """Change the search of the first seed."""
    own = (*seeded(scope, scope.seeds[0]), *changes)
    return SearchSpec(name, budget, own, descent=descent, profile=profile)
