"""Space: which plans a search may choose from, and how a plan is made to meet the limits.

Every search method draws from the same space: at most C steps, a scorer and an operator at each,
the last one keeping exactly the budget, FLOPs within a limit. Counts meet both limits by
construction, so that no method spends effort on plans that could not be deployed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from eos.space import cost
from eos.space.cost import Dims
from eos.space.plan import Plan
from eos.space.step import Operator, Step


@dataclass(frozen=True)
class Space:
    """The plans of one model, budget and FLOPs limit.

    Attributes:
        num_layers: decoder layers of the model.
        visual_tokens: N_0.
        dims: sizes of a layer.
        text_tokens: the text length that FLOPs assume.
        budget: final visual tokens, met exactly.
        max_flops: limit of FLOPs relative to the full model.
        max_layers: C, steps at most.
        scorers: names of scorers by site; a site is a decoder layer, or -1 for the input.
        operators: whether other operators than pruning belong to the space.
        mass: whether kept tokens may take over attention weights of dropped ones.
        backbone: name of the model, for plans.
    """

    num_layers: int
    visual_tokens: int
    dims: Dims
    text_tokens: int
    budget: int
    max_flops: float
    max_layers: int
    scorers: dict[int, tuple[str, ...]]
    operators: bool = True
    mass: bool = False
    backbone: str = "any"

    @property
    def sites(self) -> list[int]:
        """Where tokens may be dropped, in order."""
        return sorted(self.scorers)

    @property
    def too_tight(self) -> str:
        """Say that no plan meets the FLOPs limit, and what to do."""
        least = self.flops(self.sites[:1], [self.budget])
        return (
            f"expected a FLOPs limit that {self.budget} tokens can meet; found "
            f"{self.max_flops:.4f}, where dropping to {self.budget} after the first site costs "
            f"{least:.4f}. Raise objective.max_flops, or allow input_site"
        )

    def flops(self, layers: Sequence[int], counts: Sequence[int]) -> float:
        """FLOPs of keeping ``counts`` tokens after ``layers``, relative to the full model."""
        keep_after = dict(zip(layers, counts, strict=True))
        schedule = cost.stepwise_schedule(self.visual_tokens, keep_after, self.num_layers)
        sizes = {"tokens": self.visual_tokens, "text_tokens": self.text_tokens}
        return float(cost.flops_ratio(schedule, self.dims, **sizes))

    def fitted(self, layers: Sequence[int], counts: Sequence[int]) -> list[int] | None:
        """Rescale counts so that the last is the budget and FLOPs come as near the limit as can be.

        None if even dropping everything at the first layer costs too much.
        """
        return cost.fit_to_flops(
            [*counts[:-1], self.budget],
            tokens=self.visual_tokens,
            max_flops=self.max_flops,
            flops_of=lambda found: self.flops(layers, found),
        )

    def plan(self, steps: Sequence[Step]) -> Plan | None:
        """Make a plan of these steps with counts fitted to the limits; None if there is none."""
        ordered = sorted(steps, key=lambda step: step.layer)
        layers = [step.layer for step in ordered]
        counts = self.fitted(layers, [step.keep for step in ordered])
        if counts is None:
            return None
        kept, before = [], self.visual_tokens
        for step, keep in zip(ordered, counts, strict=True):
            if keep < before:  # a step that drops nothing is none
                kept.append(step.model_copy(update={"keep": keep}))
            before = keep
        return Plan(
            backbone=self.backbone,
            visual_tokens=self.visual_tokens,
            num_layers=self.num_layers,
            dims=self.dims,
            text_tokens=self.text_tokens,
            steps=tuple(kept),
        )

    def random_plan(self, chance: Random) -> Plan:
        """Draw a plan: sites, shares of the reduction, scorers and operators, all uniformly."""
        while True:
            number = chance.randint(1, min(self.max_layers, len(self.sites)))
            layers = sorted(chance.sample(self.sites, number))
            cuts = sorted(chance.random() for _ in range(number - 1))
            counts = [
                round(self.visual_tokens * (self.budget / self.visual_tokens) ** x) for x in cuts
            ]
            steps = [
                Step(
                    layer=layer,
                    keep=keep,
                    score=chance.choice(self.scorers[layer]),
                    operator=self.random_operator(chance),
                )
                for layer, keep in zip(layers, [*counts, self.budget], strict=True)
            ]
            plan = self.plan(steps)
            if plan is not None:
                return plan

    def random_operator(self, chance: Random) -> Operator:
        """Draw an operator: pruning half of the time, else a point of the unified space.

        Mass is passed on half of the time, and then any share of it.
        """
        prunes = not self.operators or chance.random() < 0.5
        mass = round(chance.random(), 4) if self.mass and chance.random() < 0.5 else 0.0
        if prunes and not mass:
            return Operator()
        shape = {"tau": round(10 ** chance.uniform(-2, 1), 4), "mass": mass}
        shape["theta"] = round(chance.uniform(-1, 1), 4)
        if prunes:
            return Operator(**shape)
        return Operator(
            gamma=round(chance.random(), 4),
            rho=round(chance.random(), 4),
            nu=round(chance.random(), 4),
            **shape,
        )
