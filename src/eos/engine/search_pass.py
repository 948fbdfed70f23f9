"""Search pass: what one step of a gradient search computes in a backbone, and nothing more.

One reduced pass with gradients, the full model beside it where states are compared, and logits only
where answer tokens are predicted.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from eos.engine.reduced import Reduction, attached
from eos.engine.reference import Aligned, AlignOn, EnoughError, Reference, align_layers
from eos.engine.relaxation import Relaxation, Search
from eos.errors import DataError
from eos.models.backbone import Backbone
from eos.models.sharding import is_sharded
from eos.space.step import DEFAULT_SCORER, INPUT_SCORER
from eos.space.theta import Theta
from eos.tokens import IGNORED


@dataclass(frozen=True)
class Passed:
    """What the objective takes from a reduced pass.

    Attributes:
        logits: at the P places that predict an answer in any sample, ``[B, P, V]``, or None.
        targets: the labels there, ``[B, P]``, -100 where a sample has none; None like ``logits``.
        pairs: states of both passes by layer; a layer where they do not differ yet has none.
        compared: after how many layers states were to be compared.
    """

    logits: Tensor | None = None
    targets: Tensor | None = None
    pairs: tuple[Aligned, ...] = ()
    compared: int = 0


def search_pass(
    backbone: Backbone,
    theta: Theta,
    *,
    inputs: Mapping[str, Any],
    labels: Tensor,
    predict: bool = True,
    align_on: AlignOn | None = "text",
    layers: Sequence[int] | None = None,
    relaxation: Relaxation | None = None,
    score: str = DEFAULT_SCORER,
    input_score: str = INPUT_SCORER,
    checkpoint: bool = False,
) -> Passed:
    """Run Θ on a batch, with gradients to all of Θ.

    Args:
        backbone: the frozen model.
        theta: the variables.
        inputs: of the model, without labels.
        labels: ``[B, T]``, -100 without a loss; labelled tokens take no part in scoring.
        predict: whether to compute logits; if not, layers after the last compared do not run.
        align_on: at which tokens to compare with the full model; None runs no reference.
        layers: after which to compare; every fourth if None.
        relaxation: how gradients reach the counts.
        score: the scorer in the decoder.
        input_score: the scorer before the decoder.
        checkpoint: recompute layers in the backward pass.
    """
    search = Search(theta, relaxation or Relaxation(), score, input_score)
    handler = Reduction(backbone, search.plan(search.sites()), search=search)
    handler.answer = labels != IGNORED
    if align_on is not None:
        chosen = align_layers(backbone.num_layers) if layers is None else tuple(layers)
        # a sharded model must not be left halfway: its layers would stay as they are
        early = not predict and not is_sharded(backbone.model)
        handler.reference = Reference(backbone, chosen, align_on, only=early)
    logits = targets = None
    with attached(backbone, handler, checkpoint=checkpoint) as model:
        if predict:
            handler.wanted = taught_places(labels)
            targets = labels[:, handler.wanted + 1]
            logits = model(**inputs, use_cache=False).logits
        elif align_on is not None:
            with suppress(EnoughError):
                model(**inputs, use_cache=False, logits_to_keep=1)
    if handler.reference is None:
        return Passed(logits, targets)
    reference = handler.reference
    return Passed(logits, targets, tuple(reference.pairs), len(set(reference.layers)))


def taught_places(labels: Tensor) -> Tensor:
    """List the positions that predict a labelled token of any sample, ``[P]``."""
    taught = labels[:, 1:] != IGNORED
    untaught = (~taught.any(dim=1)).nonzero().flatten().tolist()
    if untaught:
        raise DataError(
            f"expected an answer in every sample, marked by labels other than {IGNORED}; found "
            f"none in samples {untaught} of this batch"
        )
    return taught.any(dim=0).nonzero().flatten()
