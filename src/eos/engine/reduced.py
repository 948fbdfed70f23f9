"""Reduced: run a plan or Θ inside a backbone. The one place where reduction and models meet.

A plan's steps act at prefill, in the pre-hook of the layer after theirs: score with the layer's own
queries and keys, select, operate, gather. All later layers get masks, rotary embeddings and
positions of the tokens that are left, and cache only those; in decoding each layer's mask is cut to
what it holds. What leaves the decoder has the prompt's full length again, so that logits, labels
and losses stay where they were. Θ runs as the plan of its own counts, and with gradients its
choices are weighed as in `eos.engine.relaxed_steps`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor
from transformers import PreTrainedModel

from eos.engine.decoding import Decoding
from eos.engine.forward_pass import ForwardPass
from eos.engine.observing import Observer, observed
from eos.engine.reference import Reference
from eos.engine.relaxation import Relaxation, RelaxedTheta
from eos.engine.relaxed_steps import relax
from eos.engine.steps import execute
from eos.errors import BackboneError, ConfigError, PlanError
from eos.models.backbone import Backbone
from eos.models.hooks import ModelCall, hooked
from eos.models.plain import frozen, model_sizes
from eos.space.mixture import scorers_of
from eos.space.plan import Plan
from eos.space.specs import Target, read_spec
from eos.space.step import needs
from eos.space.theta import Theta


@contextmanager
def reduced(
    backbone: Backbone | PreTrainedModel,
    reduction: Plan | Theta | str,
    *,
    relaxation: Relaxation | None = None,
    recompute: bool = False,
) -> Iterator[PreTrainedModel]:
    """Run ``backbone`` under a plan or Θ inside the block; there it is an ordinary model.

    >>> import eos
    >>> from PIL import Image
    >>> backbone, processor = eos.load_backbone("miniature"), eos.load_processor("miniature")
    >>> text, image = "<image> is there a red circle ?", Image.new("RGB", (96, 96))
    >>> inputs = processor(images=image, text=text, return_tensors="pt").to(backbone.model.device)
    >>> plan = eos.Plan.preset("fastv", budget=64, num_layers=backbone.num_layers)
    >>> with eos.reduced(backbone, plan) as model:
    ...     answer = model.generate(**inputs, max_new_tokens=2)
    >>> theta = eos.Theta.start(backbone.num_layers, visual_tokens=576, budget=64)
    >>> with eos.reduced(backbone, theta) as model:
    ...     model(**inputs, labels=inputs["input_ids"]).loss.backward()
    >>> theta.weights["c"].grad.shape
    torch.Size([12])

    Args:
        backbone: of `load_backbone`; or a plain model, which is frozen inside the block only.
        reduction: a plan, or how a person names one, such as ``fastv@64`` or ``plan.json``; or Θ,
            which runs as the plan of its present counts (Eq. 11).
        relaxation: how gradients reach Θ's counts; the rest is differentiable as it is.
        recompute: run decoder layers again in the backward pass instead of keeping activations.
    """
    if not isinstance(backbone, (Backbone, PreTrainedModel)):
        raise BackboneError(
            "expected a backbone of eos.load_backbone or a model of transformers, found "
            f"{type(backbone).__name__}"
        )
    with (
        frozen(backbone) as held,
        attached(Reduction(held, _runs(reduction, held, relaxation)), recompute=recompute) as model,
    ):
        yield model


def _runs(
    reduction: Plan | Theta | str, backbone: Backbone, relaxation: Relaxation | None
) -> Plan | RelaxedTheta:
    """Read what `reduced` is given."""
    if isinstance(reduction, str):
        sizes = {k: v for k, v in model_sizes(backbone).items() if k != "backbone"}
        found = read_spec(reduction, Target(**sizes))
        if len(found) != 1:
            raise ConfigError(f"expected one plan, as in fastv@64; found {reduction!r}")
        return found[0][1]
    if isinstance(reduction, Theta):
        return RelaxedTheta(reduction, relaxation or Relaxation())
    if not isinstance(reduction, Plan):
        raise PlanError(
            "expected a plan, Θ, or a name such as fastv@64; found "
            f"{type(reduction).__name__}. A file is read by eos.Plan.load(path)"
        )
    return reduction


@contextmanager
def attached(reduction: "Reduction", *, recompute: bool = False) -> Iterator[PreTrainedModel]:
    """Hook a reduction into its backbone inside the block."""
    plan, backbone = reduction.plan, reduction.backbone
    _check(backbone, plan)
    settings = {"weighted": isinstance(reduction.runs, RelaxedTheta), "recompute": recompute}
    with hooked(backbone, reduction.begin, vision=reads_vision(plan), **settings) as model:
        yield model


def reads_vision(plan: Plan) -> bool:
    """Whether a plan's scorers or operators need evidence of the vision tower."""
    return any("vision" in needs(step.score, step.operator.kind) for step in plan.steps)


@dataclass(frozen=True)
class Reduction:
    """A plan or Θ on a backbone: makes the object of each forward pass.

    Attributes:
        backbone: the model.
        runs: the plan, or Θ, which may move between passes.
        answer: mask of answer tokens, ``[B, T]``, where the model gets no labels.
        logit_positions: places ``[P]`` whose final states (and so logits) are needed; None for all.
        reference: the full model run beside the reduced one for alignment; for a single pass.
        decoding: what passes leave for those after them.
        observer: called with what every step of a plan did; not with Θ.
    """

    backbone: Backbone
    runs: Plan | RelaxedTheta
    answer: Tensor | None = None
    logit_positions: Tensor | None = None
    reference: Reference | None = None
    decoding: Decoding = field(default_factory=Decoding)
    observer: Observer | None = None

    @property
    def plan(self) -> Plan:
        """The plan, or that of Θ's present counts."""
        return self.runs if isinstance(self.runs, Plan) else self.runs.plan(self.runs.sites())

    def begin(self, call: ModelCall) -> ForwardPass:
        """Start a forward pass."""
        if self.answer is not None:
            call = replace(call, answer=self.answer)
        runs, reduce = self.runs, execute
        if isinstance(runs, RelaxedTheta):
            sites = runs.sites()
            reduce = partial(relax, sites=sites, relaxation=runs.relaxation)
            runs = runs.plan(sites)
        elif self.observer is not None:
            reduce = partial(observed, observer=self.observer)
        return ForwardPass(
            self.backbone,
            call,
            runs,
            reduce,
            self.decoding,
            weighted=isinstance(self.runs, RelaxedTheta),
            reference=self.reference,
            logit_positions=self.logit_positions,
        )


def _check(backbone: Backbone, plan: Plan) -> None:
    problems = []
    if plan.num_layers != backbone.num_layers:
        problems.append(
            f"expected a plan for {backbone.num_layers} decoder layers, which this model has; "
            f"found one for {plan.num_layers}"
        )
    for step in plan.steps:
        early = any(x.rows != "none" and not x.ahead for x in scorers_of(step.score))
        if step.layer == -1 and early:
            problems.append(
                f"expected a scorer without text before the decoder; found {step.score!r} at "
                "layer -1"
            )
        if step.positions == "reindex" and backbone.spatial_positions:
            problems.append(
                f"expected positions 'keep' in a model with spatial positions; found 'reindex' at "
                f"layer {step.layer}"
            )
    if problems:
        raise PlanError(problems=problems)
