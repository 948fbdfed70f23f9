"""Plan: the discrete answer. Which layers keep how many tokens, chosen how, and by what operator.

Frozen, versioned JSON that a person can read and a model can run. A plan stores integers; the
three numbers that say what it costs (final tokens, mean tokens entering a layer, FLOPs relative to
the full model) are derived from them and travel with it.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, ModelWrapValidatorHandler, PositiveInt, computed_field, model_validator
from typing_extensions import Self

from eos.config import Artifact, ProblemsError
from eos.errors import EosError, PlanError
from eos.methods.registry import OPERATORS, get_preset
from eos.sizes import Expected
from eos.space import cost
from eos.space.cost import K_MIN, LLAMA_7B, TEXT_TOKENS, Dims
from eos.space.discretise import open_layers, operators_of, reducing_layers, retained
from eos.space.drawing import draw
from eos.space.step import Operator, Step, contradictions
from eos.space.theta import Theta

BudgetKind: TypeAlias = Literal["final", "mean", "published"]


class Plan(Artifact):
    """A reduction of ``visual_tokens`` tokens in a decoder of ``num_layers`` layers."""

    error: ClassVar[type[EosError]] = PlanError

    schema_: Literal["eos.plan/1"] = Field(default="eos.plan/1", alias="schema")
    backbone: str = "any"
    visual_tokens: PositiveInt
    num_layers: PositiveInt
    dims: Dims = LLAMA_7B
    text_tokens: Annotated[int, Field(ge=0)] = TEXT_TOKENS
    steps: tuple[Step, ...]
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _consistent(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        claimed = None
        if isinstance(data, Mapping):
            claimed = data.get("expected")
            data = {key: value for key, value in data.items() if key != "expected"}
        plan = handler(data)
        problems = contradictions(plan.steps, plan.visual_tokens, plan.num_layers)
        if not problems and claimed is not None and claimed != plan.expected.model_dump():
            derived = plan.expected.model_dump()
            problems = [f"expected: the steps cost {derived}, found {claimed}; delete this entry"]
        if problems:
            raise ProblemsError(problems)
        return plan

    @computed_field  # type: ignore[prop-decorator]
    @property
    def expected(self) -> Expected:
        """The plan's cost, derived from its steps."""
        sizes = {"tokens": self.visual_tokens, "text_tokens": self.text_tokens}
        return Expected(
            final_tokens=self.schedule[-1],
            mean_tokens=round(cost.mean_tokens(self.schedule), 4),
            flops_ratio=round(self._flops_ratio, 6),
            kv_bytes_ratio=round(cost.kv_bytes_ratio(self.schedule, self.dims, **sizes), 6),
            text_tokens=self.text_tokens,
        )

    @property
    def _flops_ratio(self) -> float:
        sizes = {"tokens": self.visual_tokens, "text_tokens": self.text_tokens}
        return float(cost.flops_ratio(self.schedule, self.dims, **sizes))

    @property
    def moves_mass(self) -> bool:
        """Whether kept tokens take over attention weights of dropped ones."""
        return any(isinstance(x.operator, Operator) and x.operator.mass > 0 for x in self.steps)

    @property
    def schedule(self) -> list[int]:
        """Visual tokens N_0 … N_L that enter each layer, and those left after the last."""
        keep_after = {step.layer: step.keep for step in self.steps}
        return cost.stepwise_schedule(self.visual_tokens, keep_after, self.num_layers)

    @classmethod
    def from_theta(
        cls,
        theta: Theta,
        *,
        budget: int | None = None,
        kind: BudgetKind = "final",
        every_layer: bool = False,
    ) -> Self:
        """Take the largest gates above 0.5 as the layers that reduce, at most Θ's ``max_layers``.

        >>> theta = Theta.start(32, visual_tokens=576, budget=64)
        >>> Plan.from_theta(theta, budget=32).expected.final_tokens
        32

        Without a budget the counts are Θ's own (Eq. 11). ``every_layer`` keeps every layer that
        drops a token, gates below 0.5 included: exactly what the search's forward pass does.
        Scorers, number of layers and sizes are those of ``theta.deployment``.
        """
        own = theta.deployment
        layers = reducing_layers(theta) if every_layer else open_layers(theta, own.max_layers)
        counts = retained(theta, layers)
        operators = operators_of(theta)
        steps = [
            Step(
                layer=layer,
                keep=counts[layer],
                score=own.scorer(layer),
                operator=operators[layer],
            )
            for layer in layers
        ]
        plan = cls(
            backbone=own.backbone,
            visual_tokens=theta.visual_tokens,
            num_layers=theta.num_layers,
            dims=own.dims,
            text_tokens=own.text_tokens,
            steps=steps,
        )
        return plan if budget is None else plan.rescaled(budget, kind=kind, k_min=theta.k_min)

    @classmethod
    def preset(
        cls,
        name: str,
        *,
        budget: int,
        kind: BudgetKind = "final",
        model: Any = None,
        visual_tokens: int = 576,
        num_layers: int = 32,
        dims: Dims = LLAMA_7B,
        backbone: str = "any",
        text_tokens: int = TEXT_TOKENS,
    ) -> Self:
        """Make a prior method's plan for a budget.

        >>> Plan.preset("fastv", budget=64).expected.mean_tokens
        96.0

        ``model``, of transformers or `load_backbone`, has its depth, visual tokens and sizes read.
        ``final`` and ``mean`` say what the budget counts; ``published`` takes it as the authors'
        own label and gives exactly their schedule.
        """
        if model is not None:
            # imported here, since making plans does not wait for transformers
            from eos.models.plain import model_sizes

            return cls.preset(name, budget=budget, kind=kind, **model_sizes(model))
        preset = get_preset(name)
        sizes = {"visual_tokens": visual_tokens, "num_layers": num_layers}
        own: dict[str, Any] = {
            **sizes,
            "dims": dims,
            "backbone": backbone,
            "text_tokens": text_tokens,
        }
        provenance = {"preset": name, "budget": budget, "kind": kind}
        if preset.rule is not None and kind == "final":
            like = cls.preset(preset.flops_like, budget=budget, **own)
            rule = preset.rule(tokens=visual_tokens, budget=budget, num_layers=num_layers)
            plan = cls(**own, steps=preset.steps(*rule), provenance=provenance)
            return plan.fitted(like.expected.flops_ratio)
        counts = preset.counts(budget, published=kind == "published")
        steps = preset.steps(*preset.scaled(counts, **sizes))
        plan = cls(**own, steps=steps, provenance=provenance)
        return plan if kind == "published" else plan.rescaled(budget, kind=kind)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        revision: str | None = None,
        budget: int | None = None,
        model: Any = None,
    ) -> "Plan":
        """Load the plan of a repository on the Hugging Face hub, or of a folder laid out like one.

        ``revision`` is a branch, tag or commit. ``budget`` takes the repository's plan of these
        final tokens, or rescales the nearest. A plan that was not made for ``model`` is refused.
        """
        from eos.space.hub import load_pretrained

        return load_pretrained(source, revision=revision, budget=budget, model=model)

    def save_pretrained(
        self,
        folder: str | Path,
        *,
        plans: Mapping[int, "Plan"] | None = None,
        results: object = None,
    ) -> None:
        """Write a folder as a repository on the hub has it: plans and a card; see `push_to_hub`."""
        from eos.space.hub import prepare, save

        save(folder, prepare(self, Path(folder).resolve().name, plans=plans, results=results))

    def push_to_hub(
        self,
        repo: str,
        *,
        plans: Mapping[int, "Plan"] | None = None,
        results: object = None,
        private: bool = False,
        message: str = "Upload a plan",
    ) -> str:
        """Upload the plan with a card written from its provenance; the address of the commit.

        ``plans`` are those of further budgets; ``results``, such as those of `eos.evaluate`, are
        printed in the card. Log in first: ``hf auth login``.
        """
        from eos.space.hub import prepare, push

        files = prepare(self, repo, plans=plans, results=results)
        return push(repo, files, private=private, message=message)

    def rescaled(self, budget: int, *, kind: BudgetKind = "final", k_min: int = K_MIN) -> Self:
        """Keep layers and operators, and rescale the retain schedule to another budget.

        ``final``: exactly ``budget`` tokens are left. ``mean``: as many as possible while the mean
        of tokens entering a layer stays within ``budget``.
        """
        if kind not in ("final", "mean"):
            raise PlanError(f"expected kind 'final' or 'mean', found {kind!r}")
        own = OPERATORS.get(self.steps[-1].operator.kind) if self.steps else None
        if kind == "final" and own is not None and own.nearest_budget(budget) != budget:
            raise PlanError(f"expected {own.budgets}; found {budget}")
        before = [self.visual_tokens, *(step.keep for step in self.steps)]
        keep_fracs = [after / tokens for tokens, after in pairwise(before)]
        sizes = {"tokens": self.visual_tokens, "k_min": k_min}
        try:
            if kind == "final":
                counts = cost.rescale(keep_fracs, budget=budget, **sizes)
            else:
                counts = cost.rescale_to_mean(
                    keep_fracs,
                    budget=budget,
                    mean_of=lambda found: cost.mean_tokens(self._with_counts(found).schedule),
                    **sizes,
                )
        except EosError as failure:
            raise PlanError(str(failure)) from None
        return self._with_counts(counts)

    def fitted(self, max_flops: float) -> Self:
        """Rescale all counts but the last so that FLOPs come as near a limit as they can."""
        counts = [step.keep for step in self.steps]
        fitted = cost.fit_to_flops(
            counts,
            tokens=self.visual_tokens,
            max_flops=max_flops,
            flops_of=lambda found: self._with_counts(found)._flops_ratio,
        )
        return self._with_counts(fitted or counts[-1:] * len(counts))

    def _with_counts(self, counts: list[int]) -> Self:
        steps = tuple(
            step.model_copy(update={"keep": keep})
            for step, keep in zip(self.steps, counts, strict=True)
        )
        return self.model_copy(update={"steps": steps})

    def __eq__(self, other: object) -> bool:
        """Compare what is done, not where it came from."""
        if not isinstance(other, Plan):
            return NotImplemented
        return self.model_dump(exclude={"provenance"}) == other.model_dump(exclude={"provenance"})

    def __hash__(self) -> int:
        return hash((self.visual_tokens, self.num_layers, self.steps))

    def __str__(self) -> str:
        """Draw the plan as a plain table: one row a step, then what it costs."""
        return draw(self)
