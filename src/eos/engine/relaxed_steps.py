"""Relaxed steps: execute the sites of Θ with surrogate gradients of their hard choices (Eq. 12).

Every site keeps its top-K exactly as a plan would. Behind that, a kept token has a weight of value
1 whose derivative is that of its relaxed keep probability; weights of several sites multiply. They
act where removal acts, on what later layers attend to. A *band* of the next-best tokens can be
carried along with weight 0: what they would add to the attention is a finite derivative, too. With
a *soft boundary* the weight is the keep probability itself, in value and derivative: tokens next to
the threshold are kept in part.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from eos.engine.groups import Outcome
from eos.engine.relaxation import Relaxation, Site
from eos.engine.stages import Stage, add_weights, places_of
from eos.engine.steps import GroupStep, scored
from eos.operator.combine import fold, mass_added
from eos.operator.operate import Omega
from eos.operator.select import Selection, keep_probability, keep_weight, select
from eos.operator.soft import soft_choice
from eos.tokens import take


def relax(here: GroupStep, *, sites: Mapping[int, Site], relaxation: Relaxation) -> Outcome | None:
    """Execute one site of Θ: as a plan's step would, its choice weighed for gradients."""
    stage, places, keep, site = here.stage, here.places, here.keep, sites[here.step.layer]
    moves = torch.is_grad_enabled() and isinstance(site.compression, Tensor)
    if keep == places.shape[1] and not moves:
        return None

    @torch.no_grad()  # scores are evidence: nothing is differentiated through them
    def score(places: Tensor) -> Tensor:
        return scored(here, places)[1]

    scores = score(places)
    if relaxation.boundary == "soft" and (moves or stage.weights is not None):
        return softened(here, scores, site=site, relaxation=relaxation)
    selected = select(scores, keep)
    kept = places.gather(1, selected.kept)
    stays = (~stage.visual).scatter(1, kept, True)
    anchors = operated(here.states, scores, places=places, selected=selected, omega=site.omega)
    if moves and relaxation.through == "states":
        weights = site_weights(scores, selected, site=site, relaxation=relaxation)
        now = take(here.states, kept) if anchors is None else anchors
        anchors = now * weights.gather(1, selected.kept).unsqueeze(-1).to(now.dtype)
    elif moves or stage.carries:
        weights = site_weights(scores, selected, site=site, relaxation=relaxation)
        band = relaxation.band_of(here.group.tokens)
        everyone = places_of(stage.visual)
        if band:
            scores = scores if everyone.shape == places.shape else score(everyone)
            stays, factors = carried(stage, stays, scores, everyone=everyone, band=band)
            stage = multiply_weights(stage, everyone, factors)
        stage = multiply_weights(stage, places, weights)
    weights_after = stage.weights
    if site.mass and selected.dropped.shape[1]:
        tokens = take(here.states, places)
        added = mass_added(tokens, here.weights, selected, omega=site.omega, mass=site.mass)
        weights_after = add_weights(stage, kept, added)
    return Outcome(stays, None if anchors is None else (kept, anchors), weights_after)


def softened(here: GroupStep, scores: Tensor, *, site: Site, relaxation: Relaxation) -> Outcome:
    """Execute one site with a soft boundary on the N tokens of a group."""
    stage, places, group = here.stage, here.places, here.group
    before = here.weights
    choice = soft_choice(
        scores,
        torch.ones_like(scores) if before is None else before,
        compression=site.compression,
        entering=group.hard_count or places.shape[1],
        keep=here.keep,
        selection=relaxation.selection,
        alpha=relaxation.alpha,
    )
    selected = choice.selected
    anchors = operated(here.states, scores, places=places, selected=selected, omega=site.omega)
    kept = places.gather(1, selected.kept)
    stays = (~stage.visual).scatter(1, places.gather(1, choice.staying), True)
    group.hard_count = here.keep
    weights = multiply_weights(replace(stage, weights=None), places, choice.weights).weights
    return Outcome(stays, None if anchors is None else (kept, anchors), weights)


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


def multiply_weights(stage: Stage, places: Tensor, factors: Tensor) -> Stage:
    """Multiply the weights at ``places`` ``[B, N]`` by ``factors``."""
    before = stage.weights_or_ones(factors.dtype)
    return replace(stage, weights=before * torch.ones_like(before).scatter(1, places, factors))


def carried(
    stage: Stage, stays: Tensor, scores: Tensor, *, everyone: Tensor, band: int
) -> tuple[Tensor, Tensor]:
    """Carry the best ``band`` of the tokens that are not kept along, too.

    A token already carried stays if it would have been kept here, and then before others; else
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
    kept, outside = stays.gather(1, everyone), ~stage.present.gather(1, everyone)
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
    if omega.prunes or not selected.dropped.shape[1]:
        return None

    def run(states: Tensor) -> Tensor | None:
        return fold(take(states, places), scores, selected, omega=omega)

    if not torch.is_grad_enabled():
        return run(states)
    new: Tensor = checkpoint(run, states, use_reentrant=False, preserve_rng_state=False)
    return new
