"""Judge: how far plans' answers are from the full model's, measured once and remembered.

The *divergence* of a plan on a sample is the Kullback-Leibler divergence of its next-token
distributions from the full model's, summed over the answer's tokens. It needs no labels beyond the
answer's text, and what the full model does not know cancels out, so few samples suffice. Its
*disagreement* is 1 - exp(-divergence): between 0 and 1, on the scale of accuracy, and a sample that
is lost anyway cannot outweigh all others.

Passes are deployed forward passes. Each measurement is a line of ``trials.jsonl``: a search that
was interrupted runs again, finds what it measured there, and decides as it would have.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from eos.data.batches import Answered, Batch, Reader
from eos.engine.reduced import reads_vision
from eos.engine.relaxation import RelaxedTheta
from eos.engine.search_pass import labelled_pass
from eos.models.backbone import Backbone
from eos.models.memory import remembering
from eos.models.processor import place_batch
from eos.runs.identity import check_same
from eos.runs.journal import Journal
from eos.runs.processes import Processes
from eos.space import cost
from eos.space.cost import TEXT_TOKENS
from eos.space.plan import Plan
from eos.tokens import IGNORED

CACHED = 2**30  # bytes of the full model's features and answers that are kept at most
DIGITS = 6  # of a disagreement in the journal
Mark: TypeAlias = tuple[float, frozenset[tuple[str, int]]]


@dataclass(frozen=True)
class Known:
    """What the full model makes of one piece: inputs, labels, log-probabilities, image features."""

    inputs: dict[str, Any]
    labels: Tensor
    answers: Tensor
    images: list[Any]

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        features = [x for image in self.images for x in _tensors(image)]
        return sum(x.nbytes for x in [self.answers, self.labels, *features])


@dataclass
class Judge:
    """Measures plans on the pieces of one batch of samples.

    Attributes:
        backbone: the model.
        reader: of the samples.
        batch: the samples, and how many go through the model at once: a *piece*.
        processes: that share the work, piece by piece.
        text_tokens: the text length that shares of FLOPs assume.
        journal: where measurements are kept; in memory only if None.
        facts: what the measurements belong to; a journal of something else is refused.
        weights: of the samples, ``[S]``, by which disagreements are multiplied; 1 if None.
        passes: compute so far, in forward passes of one sample through the full decoder; a reduced
            pass counts for its share of the FLOPs.
    """

    backbone: Backbone
    reader: Reader
    batch: Batch
    processes: Processes
    text_tokens: int = TEXT_TOKENS
    journal: Journal | None = None
    facts: dict[str, str] = field(default_factory=dict)
    weights: Tensor | None = None
    passes: float = 0.0

    def __post_init__(self) -> None:
        self._memo: dict[tuple[str, int], list[float]] = {}
        self._cache: dict[int, Known] = {}
        self._counted: set[tuple[str, int]] = set()
        self._pieces = list(self.batch.pieces())
        if self.journal is not None:
            self._open(self.journal)

    def _open(self, journal: Journal) -> None:
        """Read what a journal holds, or begin it."""
        if self.processes.main:
            journal.rewind(2**62)
        self.processes.wait()
        entries = list(journal.entries())
        for entry in entries[1:]:
            self._memo[entry["plan"], entry["piece"]] = entry["values"]
        before = entries[0].get("facts", {}) if entries else self.facts
        check_same(journal.path, before, self.facts, what="series of measurements")
        if not entries and self.processes.main:
            journal.append(0, {"facts": self.facts})
            journal.flush()

    def mark(self) -> Mark:
        """Give the compute so far, and the measurements that it was counted for."""
        return self.passes, frozenset(self._counted)

    def restart(self, mark: Mark) -> None:
        """Count compute on from a mark, as if nothing had been measured since."""
        self.passes, self._counted = mark[0], set(mark[1])

    @property
    def pieces(self) -> range:
        """Number the pieces."""
        return range(len(self._pieces))

    def samples(self, piece: int) -> tuple[Answered, ...]:
        """The samples of a piece."""
        return self._pieces[piece]

    def disagreement(self, plans: Sequence[Plan], pieces: Iterable[int]) -> Tensor:
        """Measure plans on pieces: ``[P, S]``, samples in the order of ``pieces``."""
        pieces, names = list(pieces), [plan_name(plan) for plan in plans]
        distinct, work = dict(zip(names, plans, strict=True)), []
        self.count(plans, pieces)
        for piece in pieces:
            lacking = {n: plan for n, plan in distinct.items() if (n, piece) not in self._memo}
            work += [(piece, lacking)] if lacking else []
        self._measure(work)
        rows = [[x for piece in pieces for x in self._memo[name, piece]] for name in names]
        size = sum(len(self._pieces[piece]) for piece in pieces)
        found = torch.tensor(rows, dtype=torch.float64).view(len(names), size)
        if self.weights is None:
            return found
        weights = torch.split(self.weights, [len(piece) for piece in self._pieces])
        return found * torch.cat([weights[piece] for piece in pieces])

    def count(self, plans: Sequence[Plan], pieces: Iterable[int]) -> None:
        """Add what measuring plans costs the first time, also if the journal knows them."""
        named = {plan_name(plan): plan for plan in plans}
        for piece in pieces:
            new = {name: plan for name, plan in named.items() if (name, piece) not in self._counted}
            if not new:
                continue
            first = ("", piece) not in self._counted  # the full model's own answers
            self.passes += len(self._pieces[piece]) * (passes_for(list(new.values())) + first)
            self._counted |= {("", piece), *((name, piece) for name in new)}

    def _measure(self, work: Sequence[tuple[int, Mapping[str, Plan]]]) -> None:
        """Run what is missing, each process its pieces, and share what was found.

        Processes that hold a part of the model each must run the same passes side by side, so all
        of them run every piece.
        """
        if self.processes.sharding:
            for piece, plans in work:
                self._keep([(piece, plans)], self._run(piece, plans).tolist())
            return
        for start in range(0, len(work), self.processes.count):
            here = work[start : start + self.processes.count]
            sizes = [len(plans) * len(self._pieces[piece]) for piece, plans in here]
            found = torch.zeros(sum(sizes), dtype=torch.float64)
            if self.processes.rank < len(here):
                offset = sum(sizes[: self.processes.rank])
                values = self._run(*here[self.processes.rank])
                found[offset : offset + len(values)] = values.double()
            self._keep(here, self.processes.total(found).tolist())

    def _keep(self, work: Sequence[tuple[int, Mapping[str, Plan]]], values: list[float]) -> None:
        offset = 0
        for piece, plans in work:
            for name in plans:
                size = len(self._pieces[piece])
                row = [round(x, DIGITS) for x in values[offset : offset + size]]
                self._memo[name, piece] = row
                offset += size
                if self.journal is not None and self.processes.main:
                    entry = {"plan": name, "piece": piece, "values": row}
                    self.journal.append(len(self._memo), entry)
        if self.journal is not None and self.processes.main:
            self.journal.flush()

    @torch.no_grad()
    def _run(self, piece: int, plans: Mapping[str, Plan]) -> Tensor:
        """Disagreement of plans on a piece, plan after plan, ``[P · S]``."""
        known = self.known(piece)
        sharing = _shares(list(plans.values()))
        found: dict[str, Tensor] = {}
        blind = {name: plan for name, plan in plans.items() if not reads_vision(plan)}
        with remembering(
            self.backbone, known.inputs, images=known.images, layers=sharing
        ) as memory:
            for name, plan in sorted(blind.items(), key=lambda pair: _first(pair[1])):
                memory.until = _first(plan) if sharing else -1
                found[name] = self.compare(known, plan)
        for name, plan in plans.items():
            if name not in found:  # it reads the vision tower, which must run
                found[name] = self.compare(known, plan)
        return torch.cat([found[name].cpu() for name in plans])

    def compare(
        self, known: Known, runs: Plan | RelaxedTheta, *, recompute: bool = False
    ) -> Tensor:
        """Run a plan, or Θ with gradients, on a piece: its disagreement, ``[B]``."""
        output = labelled_pass(
            self.backbone, runs, inputs=known.inputs, labels=known.labels, recompute=recompute
        )
        reduced = log_softmax(output.answers, dim=-1)
        return disagreement(reduced, known.answers, labels=known.labels)

    @torch.no_grad()
    def known(self, piece: int) -> Known:
        """Run the full model on a piece, once; cached up to `CACHED` bytes."""
        if piece in self._cache:
            return self._cache[piece]
        batch = self.reader.inputs(self._pieces[piece])
        inputs, labels = place_batch(self.backbone.model, batch)
        images: list[Any] = []
        full = Plan(visual_tokens=1, num_layers=self.backbone.num_layers, steps=())
        with remembering(self.backbone, inputs, images=images, layers=False):
            output = labelled_pass(self.backbone, full, inputs=inputs, labels=labels)
        known = Known(inputs, labels, log_softmax(output.answers, dim=-1), images)
        held = sum(other.size for other in self._cache.values())
        if held + known.size <= CACHED:
            self._cache[piece] = known
        return known


def disagreement(reduced: Tensor, full: Tensor, *, labels: Tensor) -> Tensor:
    """1 - exp(-divergence) of each sample, ``[B]``, of log-probabilities ``[A, V]``."""
    each = (full.exp() * (full - reduced)).sum(dim=-1).clamp_min(0)
    sample = (labels[:, 1:] != IGNORED).nonzero()[:, 0].to(each.device)
    total = torch.zeros(len(labels), device=each.device).index_add(0, sample, each)
    return -torch.expm1(-total)


def plan_name(plan: Plan) -> str:
    """Write what a plan does on one line, the same for equal plans."""
    steps = [step.model_dump(mode="json", exclude_defaults=True) for step in plan.steps]
    return json.dumps(steps, separators=(",", ":"), sort_keys=True)


def _first(plan: Plan) -> int:
    """The first layer after which a plan reduces; the last of the model if it never does."""
    return plan.steps[0].layer if plan.steps else plan.num_layers - 1


def passes_for(plans: Sequence[Plan]) -> float:
    """Compute of measuring plans on one sample, besides the full model's own answers."""
    sharing = _shares(plans)
    return sharing + sum(flops_share(x, after=_first(x) if sharing else -1) for x in plans)


def _shares(plans: Sequence[Plan]) -> bool:
    """Whether running the full model once and going on from it saves more than it costs."""
    return sum((_first(plan) + 1) / plan.num_layers for plan in plans) > 1.0


def flops_share(plan: Plan, *, after: int) -> float:
    """FLOPs of a plan's layers after one, relative to all layers of the full model."""
    tokens = plan.schedule[after + 1 : -1]
    own = sum(cost.layer_flops(n + plan.text_tokens, plan.dims) for n in tokens)
    whole = cost.layer_flops(plan.visual_tokens + plan.text_tokens, plan.dims) * plan.num_layers
    return float(own / whole)


def _tensors(value: Any) -> list[Tensor]:
    """Find the tensors in a model's output."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [x for part in value for x in _tensors(part)]
