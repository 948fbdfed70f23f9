"""Search pass: one pass over a labelled batch, and what it returns to an objective.

Logits only where answer tokens are predicted; with alignment, the full model beside the reduced
one. `labelled_pass` runs a plan as deployed, or Θ with gradients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from eos.engine.reduced import Reduction, attached
from eos.engine.reference import Aligned, AlignOn, Reference, align_layers
from eos.engine.relaxation import RelaxedTheta
from eos.errors import DataError
from eos.models.backbone import Backbone
from eos.models.memory import truncated
from eos.models.sharding import is_sharded
from eos.space.plan import Plan
from eos.tokens import IGNORED


@dataclass(frozen=True)
class PassOutput:
    """What a pass over a labelled batch returns.

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

    @property
    def answers(self) -> Tensor:
        """Logits of the answers' tokens alone, in float32, ``[A, V]``, A in all samples."""
        assert self.logits is not None
        assert self.targets is not None
        return self.logits[self.targets != IGNORED].float()


def labelled_pass(
    backbone: Backbone,
    runs: Plan | RelaxedTheta,
    *,
    inputs: Mapping[str, Any],
    labels: Tensor,
    reference: Reference | None = None,
    recompute: bool = False,
) -> PassOutput:
    """Predict the labelled tokens of a batch under a plan or Θ.

    Args:
        backbone: the frozen model.
        runs: the plan; or Θ, with gradients to all of it.
        inputs: of the model, without labels.
        labels: ``[B, T]``, -100 without a loss; labelled tokens take no part in scoring.
        reference: the full model for alignment, or None.
        recompute: run layers again in the backward pass instead of keeping activations.
    """
    positions = predicting_positions(labels)
    reduction = Reduction(backbone, runs, labels != IGNORED, positions, reference)
    with attached(reduction, recompute=recompute) as model:
        logits = model(**inputs, use_cache=False).logits
    targets = labels[:, positions + 1]
    if reference is None:
        return PassOutput(logits, targets)
    return PassOutput(logits, targets, tuple(reference.pairs), len(set(reference.layers)))


def search_pass(
    backbone: Backbone,
    search: RelaxedTheta,
    *,
    inputs: Mapping[str, Any],
    labels: Tensor,
    predict: bool = True,
    align_on: AlignOn | None = "text",
    layers: Sequence[int] | None = None,
    recompute: bool = False,
) -> PassOutput:
    """Run Θ on a batch, with gradients to all of Θ.

    Args:
        backbone: the frozen model.
        search: Θ, its scorers and its relaxation.
        inputs: of the model, without labels.
        labels: as of `labelled_pass`.
        predict: whether to compute logits; if not, layers after the last compared do not run.
        align_on: at which tokens to compare with the full model; None runs no reference.
        layers: after which to compare; every fourth if None.
        recompute: run layers again in the backward pass instead of keeping activations.
    """
    given: dict[str, Any] = {"inputs": inputs, "labels": labels, "recompute": recompute}
    if align_on is None:
        return labelled_pass(backbone, search, **given) if predict else PassOutput()
    chosen = align_layers(backbone.num_layers) if layers is None else tuple(layers)
    reference = Reference(backbone, chosen, align_on)
    if predict:
        return labelled_pass(backbone, search, reference=reference, **given)
    reduction = Reduction(backbone, search, labels != IGNORED, reference=reference)
    with attached(reduction, recompute=recompute) as model:
        if is_sharded(model):  # every process must run its part of every layer
            model(**inputs, use_cache=False, logits_to_keep=1)
        else:
            with truncated(backbone, after=reference.last):
                backbone.multimodal(**inputs, use_cache=False)
    return PassOutput(pairs=tuple(reference.pairs), compared=len(set(reference.layers)))


def predicting_positions(labels: Tensor) -> Tensor:
    """List the positions that predict a labelled token of any sample, ``[P]``."""
    labelled = labels[:, 1:] != IGNORED
    without = (~labelled.any(dim=1)).nonzero().flatten().tolist()
    if without:
        raise DataError(
            f"expected an answer in every sample, marked by labels other than {IGNORED}; found "
            f"none in samples {without} of this batch"
        )
    return labelled.any(dim=0).nonzero().flatten()
