"""Tasks: questions, their reference answers, and the metric that scores a prediction.

A task is data: families of questions in groups, a way to make the question of a number, a metric.
It knows nothing of models. A new one is a function that makes items, and an entry in `TASKS`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Protocol, TypeAlias

from eos.data.samples import Skipped
from eos.errors import ConfigError
from eos.evaluation.ledger import Prediction
from eos.evaluation.totals import Total
from eos.miniature.families import QUESTION_FAMILIES

Metric: TypeAlias = Callable[[str, Sequence[str]], float]


@dataclass(frozen=True)
class Item:
    """One question.

    Attributes:
        messages: the conversation up to the answer, as chat templates read it, images included.
        answers: the references, one or more.
        chance: expected score of a guess without the image; None if unknown.
        id: name of the question.
        metric: of this question alone, instead of the task's.
    """

    messages: list[dict[str, Any]]
    answers: tuple[str, ...]
    chance: float | None
    id: str
    metric: Metric | None = None


@dataclass(frozen=True)
class TaskFamily:
    """A kind of question.

    Attributes:
        group: families of a group are averaged, such as "prior" and "extended".
        imitates: the public benchmark it resembles; "" if it is one itself.
        sizes: number of questions by split; a split that is not listed has no end.
    """

    group: str
    imitates: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)

    def count(self, split: str, limit: int) -> int:
        """Number of questions of a split to answer, at most ``limit``."""
        return min(limit, self.sizes.get(split, limit))


class MakesItems(Protocol):
    """Makes a question; the same arguments give the same one on every machine."""

    def __call__(self, split: str, family: str, *, number: int, seed: int) -> Item:
        """Make question ``number`` of a family."""


class MakesTotals(Protocol):
    """Estimates figures of a whole task from predictions by family, in the questions' order."""

    def __call__(
        self,
        own: Mapping[str, Sequence[Prediction]],
        full: Mapping[str, Sequence[Prediction]] | None,
    ) -> dict[str, Total]:
        """Estimate a run's figures, and their differences to the full model's unless it is that."""


@dataclass(frozen=True)
class Task:
    """Families of questions with one metric.

    Attributes:
        name: as in `TASKS`.
        what: a line for lists.
        note: what a reader of scores must know; stands under every table.
        families: by name, in the order of tables.
        splits: names of disjoint sets of questions.
        item: makes a question.
        metric: score in [0, 1] of a prediction, given the reference answers.
        max_new_tokens: length of an answer; if None, that of a family's longest reference and one
            token to end it.
        spare_tokens: that many instead of one, for models that put words around an answer.
        data: what the questions are made of, if not of the seed alone; a resumed evaluation needs
            an equal text.
        skipped: samples of the data that could not be used.
        totals: makes figures that are no mean over families; the first is the task's own.
        in_memory: questions whose images are held at once, if not as many as usual.
    """

    name: str
    what: str
    note: str
    families: Mapping[str, TaskFamily]
    splits: tuple[str, ...]
    item: MakesItems
    metric: Metric
    max_new_tokens: int | None = None
    spare_tokens: int = 1
    data: str | None = None
    skipped: tuple[Skipped, ...] = ()
    totals: MakesTotals | None = None
    in_memory: int | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """The families' groups, each once, in order."""
        return tuple(dict.fromkeys(family.group for family in self.families.values()))

    def counts(self, split: str, limit: int) -> dict[str, int]:
        """Number of questions to answer of each family, at most ``limit``."""
        return {name: family.count(split, limit) for name, family in self.families.items()}


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 if the prediction is one of the reference answers, blanks around it aside, otherwise 0.

    >>> exact_match(" 3 7 ", ["3 7"]), exact_match("3 7 1", ["3 7"]), exact_match("37", ["3 7"])
    (1.0, 0.0, 0.0)
    """
    return float(prediction.strip() in [answer.strip() for answer in answers])


def find_task(text: str, *, others: Iterable[str] = ()) -> Task:
    """Find a task by name; ``name:family,family`` leaves only these families.

    An error for an unknown name lists ``others`` too.
    """
    name, _, chosen = text.partition(":")
    if name not in TASKS:
        raise ConfigError(_unknown("a task", name, [*TASKS, *others]))
    task = TASKS[name]
    names = [family.strip() for family in chosen.split(",") if family.strip()]
    for family in names:
        if family not in task.families:
            raise ConfigError(_unknown(f"a family of {name}", family, task.families))
    kept = {name: family for name, family in task.families.items() if name in names}
    return replace(task, families=kept) if kept else task


def _unknown(kind: str, found: str, known: Iterable[str]) -> str:
    close = get_close_matches(found, list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"expected {kind}: {', '.join(known)}; found {found!r}{hint}"


def _mini_item(split: str, family: str, *, number: int, seed: int) -> Item:
    from eos.miniature.world import example  # brings models along, which a list of tasks can spare

    made = example(split, family, number, seed=seed)
    return Item(made.messages(), (made.question.answer,), made.question.chance, made.id)


TASKS: dict[str, Task] = {
    "mini": Task(
        name="mini",
        what="The miniature's own world: 15 families of questions about 96 by 96 pixel images.",
        note=(
            "The miniature world: small scale, made for comparing reductions of one model with "
            "each other; not comparable to public benchmarks."
        ),
        families={
            name: TaskFamily(family.group, family.imitates)
            for name, family in QUESTION_FAMILIES.items()
            if family.group != "training"
        },
        splits=("train", "validation", "test"),
        item=_mini_item,
        metric=exact_match,
    ),
}
