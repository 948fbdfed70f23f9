"""Relaxation: surrogate gradients of the forward pass's hard choices (Eqs. 11-12).

Every site keeps its top-K exactly as a plan would. Behind that, a kept token has a weight of value
1 whose derivative is that of its relaxed keep probability; weights of several sites multiply. They
act where removal acts, on what later layers attend to. A *band* of the next-best tokens can be
carried along with weight 0: what they would add to the attention is a finite derivative, too. With
a *soft boundary* the weight is the keep probability itself, in value and derivative: tokens next to
the threshold are kept in part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from eos.engine.forward_pass import Run, scored
from eos.engine.stages import Stage, places_of
from eos.errors import ConfigError, numbered
from eos.models.backbone import Backbone, LayerCall
from eos.operator.operate import Omega, unified_operator
from eos.operator.select import ALPHA, SELECTIONS, Selection, keep_probability, keep_weight, select
from eos.operator.soft import soft_choice
from eos.space.plan import Plan
from eos.space.step import DEFAULT_SCORER, INPUT_SCORER, Step
from eos.space.theta import GROUPS, Theta
from eos.tokens import take

Through: TypeAlias = Literal["logits", "states"]
Boundary: TypeAlias = Literal["hard", "soft"]


@dataclass(frozen=True)
class Relaxation:
    """How gradients reach the counts.

    Attributes:
        selection: whose derivative stands in for the choice's: ``rank``, ``marginal``, ``paper``.
        through: where the weights act, on the ``logits`` of later attention or on the ``states``.
        alpha: sharpness α of the boundary (Eq. 12).
        band: how many tokens to carry along with weight 0; below 1, a fraction of the visual ones.
        boundary: ``hard``, the deployed choice in the forward pass; or ``soft``: while gradients
            are recorded, every token that is likely enough to be kept stays, with its keep
            probability as weight. An operator acts on the hard choice; tokens beyond it stay as
            they are. The sharper α, the nearer the pass is to the deployed one.
    """

    selection: str = "rank"
    through: Through = "logits"
    alpha: float = ALPHA
    band: float = 0
    boundary: Boundary = "hard"

    def __post_init__(self) -> None:
        problems = []
        if self.selection not in SELECTIONS:
            problems.append(f"expected selection in {sorted(SELECTIONS)}, found {self.selection!r}")
        if self.through not in ("logits", "states"):
            problems.append(f"expected through 'logits' or 'states', found {self.through!r}")
        if not self.alpha > 0:
            problems.append(f"expected a positive alpha, found {self.alpha}")
        if self.band < 0 or (self.band > 1 and self.band != int(self.band)):
            problems.append(f"expected a band of 0, a fraction or a count, found {self.band}")
        if self.band and self.through == "states":
            problems.append("expected through 'logits' with a band, which nobody attends to")
        if self.boundary not in ("hard", "soft"):
            problems.append(f"expected boundary 'hard' or 'soft', found {self.boundary!r}")
        if self.boundary == "soft":
            problems += soft_problems(self.selection, self.through, self.band)
        if problems:
            raise ConfigError(numbered(problems))

    def band_of(self, tokens: int) -> int:
        """Say how many of ``tokens`` visual tokens are carried along at most."""
        return round(self.band * tokens) if self.band < 1 else int(self.band)


def soft_problems(selection: str, through: str, band: float) -> list[str]:
    """List what does not go with a soft boundary."""
    problems = []
    if through == "states":
        problems.append("expected through 'logits' with a soft boundary, found 'states'")
    if selection == "paper":  # its probabilities do not sum to the count
        problems.append("expected selection 'rank' or 'marginal' with a soft boundary")
    if band:
        problems.append(f"expected no band with a soft boundary, found {band:g}")
    return problems


@dataclass(frozen=True)
class Site:
    """The variables of one site in one forward pass.

    Attributes:
        omega: the operator, exact floats where entries are fixed.
        compression: g·c; a float if nothing about it can move.
    """

    omega: Omega
    compression: float | Tensor


@dataclass(frozen=True)
class Search:
    """Θ as a reduction that can be differentiated.

    Attributes:
        theta: the variables.
        relaxation: how gradients reach the counts.
        score: the scorer of sites in the decoder, and
        input_score: of the site before it, except
        scores: by layer, where a site has a scorer of its own.
    """

    theta: Theta
    relaxation: Relaxation = Relaxation()
    score: str = DEFAULT_SCORER
    input_score: str = INPUT_SCORER
    scores: Mapping[int, str] = field(default_factory=dict)

    def sites(self) -> dict[int, Site]:
        """Read the variables of every site that can reduce, by layer."""
        columns = [self.theta.entries(group) for group in GROUPS]
        sites = {}
        for layer, (g, c, *omega) in zip(self.theta.sites, zip(*columns, strict=True), strict=True):
            shut = any(not isinstance(x, Tensor) and x == 0.0 for x in (g, c))
            if not shut:
                sites[layer] = Site(Omega(*omega), g * c)
        return sites

    def plan(self, sites: dict[int, Site]) -> Plan:
        """Count what every site keeps now (Eq. 11); operators stay with the sites."""
        left = self.theta.retain_schedule()
        steps = [
            Step(
                layer=layer,
                keep=left[layer + 1],
                score=self.scores.get(layer, self.input_score if layer < 0 else self.score),
            )
            for layer in sites
        ]
        return Plan(
            visual_tokens=self.theta.visual_tokens, num_layers=self.theta.num_layers, steps=steps
        )


def relax(
    backbone: Backbone,
    run: Run,
    call: LayerCall,
    *,
    step: Step,
    site: Site,
    relaxation: Relaxation,
    keep: int,
) -> LayerCall:
    """Execute one site of Θ: as a plan's step would, its choice weighed for gradients."""
    assert run.stage is not None
    stage, places = run.stage, places_of(run.stage.visual & run.stage.counts)
    moves = torch.is_grad_enabled() and isinstance(site.compression, Tensor)
    if keep == places.shape[1] and not moves:
        return call

    @torch.no_grad()  # scores are evidence: nothing is differentiated through them
    def score(places: Tensor) -> Tensor:
        return scored(backbone, run, call, step=step, places=places, keep=keep)[1]

    scores = score(places)
    if relaxation.boundary == "soft" and (moves or stage.weights is not None):
        return softened(
            run, call, scores, places=places, site=site, relaxation=relaxation, keep=keep
        )
    selected = select(scores, keep)
    kept = places.gather(1, selected.kept)
    stays = (~stage.visual).scatter(1, kept, True)
    anchors = operated(call.states, scores, places=places, selected=selected, omega=site.omega)
    if moves and relaxation.through == "states":
        weights = site_weights(scores, selected, site=site, relaxation=relaxation)
        here = take(call.states, kept) if anchors is None else anchors
        anchors = here * weights.gather(1, selected.kept).unsqueeze(-1).to(here.dtype)
    elif moves or not bool(stage.counts.all()):
        weights = site_weights(scores, selected, site=site, relaxation=relaxation)
        band = relaxation.band_of(run.visual_tokens)
        everyone = places_of(stage.visual)
        if band:
            scores = scores if everyone.shape == places.shape else score(everyone)
            stays, factors = carried(stage, stays, scores, everyone=everyone, band=band)
            stage = weighed(stage, everyone, factors)
        stage = weighed(stage, places, weights)
    return run.shorten(call, stage, stays=stays, anchors=anchors)


def softened(
    run: Run,
    call: LayerCall,
    scores: Tensor,
    *,
    places: Tensor,
    site: Site,
    relaxation: Relaxation,
    keep: int,
) -> LayerCall:
    """Execute one site with a soft boundary on the N tokens at ``places`` ``[B, N]``."""
    assert run.stage is not None
    stage = run.stage
    before = torch.ones_like(scores) if stage.weights is None else stage.weights.gather(1, places)
    choice = soft_choice(
        scores,
        before,
        compression=site.compression,
        entering=run.counted or places.shape[1],
        keep=keep,
        selection=relaxation.selection,
        alpha=relaxation.alpha,
    )
    selected = choice.selected
    anchors = operated(call.states, scores, places=places, selected=selected, omega=site.omega)
    if anchors is not None:
        index = places.gather(1, selected.kept)[..., None].expand_as(anchors)
        call = replace(call, states=call.states.scatter(1, index, anchors.to(call.states.dtype)))
    stays = (~stage.visual).scatter(1, places.gather(1, choice.staying), True)
    stage, run.counted = weighed(replace(stage, weights=None), places, choice.weights), keep
    return run.shorten(call, stage, stays=stays, anchors=None)


def site_weights(
    scores: Tensor, selected: Selection, *, site: Site, relaxation: Relaxation
) -> Tensor:
    """Weigh N tokens by one site's choice, ``[B, N]``: 1 if kept, else 0, with a derivative."""
    compression = torch.as_tensor(site.compression, device=scores.device)
    probability = keep_probability(
        scores,
        compression,
        selected.kept.shape[-1],
        selection=relaxation.selection,
        alpha=relaxation.alpha,
    )
    return keep_weight(probability, selected)


def weighed(stage: Stage, places: Tensor, factors: Tensor) -> Stage:
    """Multiply the weights at ``places`` ``[B, N]`` by ``factors``."""
    before = stage.weights
    if before is None:
        before = torch.ones(stage.slots.shape, dtype=factors.dtype, device=factors.device)
    return replace(stage, weights=before * torch.ones_like(before).scatter(1, places, factors))


def carried(
    stage: Stage, stays: Tensor, scores: Tensor, *, everyone: Tensor, band: int
) -> tuple[Tensor, Tensor]:
    """Carry the best ``band`` of the tokens that are not kept along, too.

    A token already carried goes on if it would have been kept here, and then before others; else
    its weight is a product of two zeros, without a derivative.

    Args:
        stage: before the site.
        stays: which tokens stay, ``[B, T']``.
        scores: of all V visual tokens, also those carried, ``[B, V]``.
        everyone: their places among the T', ``[B, V]``.
        band: how many.

    Returns:
        ``stays`` with them, and factors for the weights of everyone, ``[B, V]``.
    """
    kept, outside = stays.gather(1, everyone), ~stage.counts.gather(1, everyone)
    lowest = scores.masked_fill(~kept, torch.inf).amin(dim=1, keepdim=True)
    lost = outside & (scores < lowest)
    least = torch.finfo(scores.dtype).min
    rest = scores.masked_fill(lost, least).masked_fill(kept, -torch.inf)
    most = min(band, everyone.shape[1] - int(kept[0].sum()))
    chosen = everyone.gather(1, rest.topk(most, dim=1).indices)
    return stays.scatter(1, chosen, True), (~lost).to(torch.float32)


def operated(
    states: Tensor, scores: Tensor, *, places: Tensor, selected: Selection, omega: Omega
) -> Tensor | None:
    """Apply the operator to the N tokens at ``places`` of ``states`` ``[B, T', D]``: ``[B, K, D]``.

    None if the kept tokens stay as they are. Recomputed in the backward pass: it is cheap, and what
    it would hold on to is not.
    """
    if not selected.dropped.shape[1] or omega.prunes:
        return None
    kept, dropped = (places.gather(1, index) for index in (selected.kept, selected.dropped))
    rest = scores.gather(1, selected.dropped)

    def run(states: Tensor) -> Tensor:
        anchors, candidates = take(states, kept), take(states, dropped)
        return unified_operator(anchors, candidates, rest, **omega._asdict())

    if not torch.is_grad_enabled():
        return run(states)
    new: Tensor = checkpoint(run, states, use_reentrant=False, preserve_rng_state=False)
    return new
