"""Tasks: what a model is asked, and when an answer is right.

A task is data: families of questions in groups, a way to make the question of a number, a metric.
It knows nothing of models. A new one is a function that makes items, and an entry in `TASKS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Protocol

from eos.errors import ConfigError
from eos.miniature.families import FAMILIES


@dataclass(frozen=True)
class Item:
    """One question.

    Attributes:
        messages: the conversation up to the answer, as chat templates read it, images included.
        answer: what is right.
        chance: probability of a right guess without looking.
        id: names the question for people.
    """

    messages: list[dict[str, Any]]
    answer: str
    chance: float
    id: str


@dataclass(frozen=True)
class Family:
    """A kind of question: its group ("prior" or "extended"), and what it imitates."""

    group: str
    imitates: str


class MakesItems(Protocol):
    """Makes a question; the same arguments give the same one on every machine."""

    def __call__(self, split: str, family: str, *, number: int, seed: int) -> Item:
        """Make question ``number`` of a family."""


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
        correct: the metric, of a prediction and the answer.
    """

    name: str
    what: str
    note: str
    families: Mapping[str, Family]
    splits: tuple[str, ...]
    item: MakesItems
    correct: Callable[[str, str], bool]

    @property
    def groups(self) -> tuple[str, ...]:
        """The families' groups, each once, in order."""
        return tuple(dict.fromkeys(family.group for family in self.families.values()))


def exact_match(prediction: str, answer: str) -> bool:
    """Whether the words are those of the answer, blanks around them aside.

    >>> exact_match(" 3 7 ", "3 7"), exact_match("3 7 1", "3 7"), exact_match("37", "3 7")
    (True, False, False)
    """
    return prediction.strip() == answer.strip()


def find_task(text: str) -> Task:
    """Find a task by name; ``name:family,family`` leaves only these families."""
    name, _, chosen = text.partition(":")
    if name not in TASKS:
        raise ConfigError(_unknown("a task", name, TASKS))
    task = TASKS[name]
    wanted = [family.strip() for family in chosen.split(",") if family.strip()]
    for family in wanted:
        if family not in task.families:
            raise ConfigError(_unknown(f"a family of {name}", family, task.families))
    kept = {name: family for name, family in task.families.items() if name in wanted}
    return replace(task, families=kept) if kept else task


def _unknown(kind: str, found: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(found, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"expected {kind}: {', '.join(known)}; found {found!r}{hint}"


def _mini_item(split: str, family: str, *, number: int, seed: int) -> Item:
    from eos.miniature.world import example  # brings models along, which a list of tasks can spare

    made = example(split, family, number, seed=seed)
    return Item(made.messages(), made.question.answer, made.question.chance, made.id)


TASKS: dict[str, Task] = {
    "mini": Task(
        name="mini",
        what="The miniature's own world: 15 families of questions about 96 by 96 pixel images.",
        note=(
            "The miniature world: small scale, made for comparing reductions of one model with "
            "each other; not comparable to public benchmarks."
        ),
        families={
            name: Family(family.group, family.imitates)
            for name, family in FAMILIES.items()
            if family.group != "training"
        },
        splits=("train", "validation", "test"),
        item=_mini_item,
        correct=exact_match,
    ),
}
