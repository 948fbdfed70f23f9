"""Context: the model that a programme runs on, and the folder that its pieces are made in."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from eos.config import Frozen
from eos.evaluation.answering import Answerer
from eos.evaluation.evaluate import DEFAULT_SPLIT
from eos.evaluation.tasks import Task, find_task
from eos.models.backbone import Backbone, load_backbone
from eos.models.devices import environment_of
from eos.models.processor import fingerprint, load_processor, locate, model_name, text_length
from eos.programme.pieces import digest_of
from eos.programme.scope import Scope
from eos.searching.files import read_config
from eos.sizes import Dims
from eos.space.plan import Plan
from eos.space.specs import Target
from eos.space.step import Operator, Step

SHORT_DIGEST = 8  # of a digest in the name of a folder
PRUNE = Operator()


class ModelInfo(Frozen):
    """What a loaded model is: fingerprint of its weights, name, sizes; and where it ran."""

    fingerprint: str
    backbone: str
    visual_tokens: int
    num_layers: int
    dims: Dims
    text_tokens: int
    environment: dict[str, Any]

    @property
    def target(self) -> Target:
        """The sizes that plans are made for."""
        return Target(self.visual_tokens, self.num_layers, self.dims, self.text_tokens)


@dataclass
class Context:
    """What the builders of pieces share: folder, scope, and the model, loaded when it is needed.

    Attributes:
        folder: of the programme.
        scope: what all pieces share.
        digests: of the pieces, by name.
    """

    folder: Path
    scope: Scope
    digests: dict[str, str] = field(default_factory=dict)

    @cached_property
    def backbone(self) -> Backbone:
        """Load the model."""
        scope = self.scope
        return load_backbone(
            locate(read_config(scope.config, scope.changes).backbone),
            device=scope.device,
            dtype=scope.dtype,
            attn_implementation=scope.attention,
        )

    @cached_property
    def answerer(self) -> Answerer:
        """Load the processor beside the model."""
        return Answerer(self.backbone, load_processor(self.backbone.model))

    @cached_property
    def task(self) -> Task:
        """Find the questions."""
        return find_task(self.scope.task)

    @cached_property
    def info(self) -> ModelInfo:
        """Describe the model."""
        model, task = self.backbone.model, self.task
        first = next(iter(task.families))
        item = task.item(DEFAULT_SPLIT, first, number=0, seed=self.scope.seed)
        return ModelInfo(
            fingerprint=fingerprint(model),
            backbone=model_name(model),
            visual_tokens=self.answerer.visual_tokens(item),
            num_layers=self.backbone.num_layers,
            dims=self.backbone.dims,
            text_tokens=text_length(model),
            environment=environment_of(model, seed=self.scope.seed),
        )

    def run_folder(self, name: str) -> Path:
        """Say where a search keeps its state: apart from one of other inputs."""
        return self.folder / "searches" / f"{name}-{self.digests[f'search/{name}'][:SHORT_DIGEST]}"

    def plan(self, name: str) -> Plan:
        """Load the plan of a search that is done."""
        return Plan.load(self.folder / plan_file(name))

    def answers_folder(self, scope: Scope, family: str) -> Path:
        """Say where the answers to a family's questions are: apart from those to others."""
        return self.folder / answers_path(scope, self.info.fingerprint, family)


def answers_path(scope: Scope, model: str, family: str) -> str:
    """Name the folder of the answers to a family's questions, within that of the programme."""
    asked = digest_of({**scope.questions, "model": model})[:SHORT_DIGEST]
    return f"eval/{asked}/{family}"


def plan_file(name: str) -> str:
    """Name the file of a search's plan."""
    return f"plans/{name}.json"


def canonical(plan: Plan) -> Plan:
    """Leave of a plan what its answers follow from; equal ones answer alike.

    Pruning leaves no trace of a token, so that the other numbers of its operator do not count;
    unless its attention is passed on, which they say to whom.
    """
    steps = tuple(
        step.model_copy(update={"operator": PRUNE}) if _only_prunes(step) else step
        for step in plan.steps
    )
    return plan.model_copy(update={"steps": steps, "backbone": "any", "provenance": {}})


def _only_prunes(step: Step) -> bool:
    operator = step.operator
    return isinstance(operator, Operator) and operator.omega.prunes and not operator.mass


def run_name(plan: Plan) -> str:
    """Name a plan in the folder of answers by what it does, so that equal plans answer once."""
    steps = [step.model_dump(mode="json") for step in canonical(plan).steps]
    return digest_of([plan.visual_tokens, plan.num_layers, steps])
