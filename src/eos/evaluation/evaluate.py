"""Evaluate: let the full model and plans answer the same questions, and compare them pairwise.

Batch by batch every run answers in turn, so that an image is drawn, read and seen once. The batches
follow from the settings alone, never from what is already answered: an evaluation that was
interrupted and goes on ends with exactly the results of one that was not.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eos.errors import ConfigError, DataError, numbered
from eos.evaluation.answering import Batch, Desk, batches, blanked
from eos.evaluation.ledger import Ledger, Prediction
from eos.evaluation.results import Results, summarise
from eos.evaluation.settings import Settings, join_folder
from eos.evaluation.specs import named_plans
from eos.evaluation.tasks import Item, Task, find_task
from eos.models.backbone import Backbone, load_backbone
from eos.models.devices import device_of
from eos.models.processor import (
    Processor,
    fingerprint,
    load_processor,
    locate,
    model_name,
    text_length,
)
from eos.runs.environment import environment
from eos.runs.files import write_atomically
from eos.space.plan import Plan

Watch = Callable[[int, int], None]


def evaluate(
    backbone: str | Path | Backbone,
    plans: Mapping[str, Plan] | Iterable[str] = (),
    *,
    out: str | Path,
    task: str = "mini",
    split: str = "test",
    limit: int = 100,
    seed: int = 0,
    batch_size: int = 16,
    blank: bool = False,
    processor: Processor | None = None,
    watch: Watch | None = None,
) -> Results:
    """Ask the full model and every plan the same questions; go on with what ``out`` already has.

    >>> results = eos.evaluate("miniature", ["fastv@64"], out="runs/fastv")  # doctest: +SKIP
    >>> results.row("fastv@64").average.difference.points  # doctest: +SKIP

    Args:
        backbone: a name, a folder, or a model that is already loaded.
        plans: by name; or as the command line names them, such as ``fastv@64`` or a file.
        out: folder for config.json, env.json, predictions.jsonl and results.json.
        task: name of a task, all of its families; ``mini:presence,counting`` takes these only.
        split: which of the task's sets of questions.
        limit: how many questions of each family.
        seed: of the questions.
        batch_size: how many questions at once.
        blank: show a grey image instead of each true one: what can be answered without looking?
        processor: of a model that was not loaded from a name or a folder.
        watch: told how many answers there are, and of how many, whenever that changes.
    """
    chosen = find_task(task)
    _check(chosen, split=split, limit=limit, batch_size=batch_size)
    desk, name = _desk(backbone, processor)
    first = chosen.item(split, next(iter(chosen.families)), number=0, seed=seed)
    unreduced = _unreduced(desk, first)
    asked = Settings(
        backbone=name,
        fingerprint=fingerprint(desk.backbone.model),
        task=chosen.name,
        families=tuple(chosen.families),
        split=split,
        limit=limit,
        seed=seed,
        blank=blank,
        batch_size=batch_size,
        plans=named_plans(plans, desk.backbone, visual_tokens=unreduced.visual_tokens),
    )
    folder = Path(out)
    settings = join_folder(asked, folder)
    ledger = Ledger(folder / "predictions.jsonl")
    _Evaluation(desk, chosen, asked, ledger, watch).run(folder)
    results = summarise(settings, chosen, ledger, unreduced=unreduced)
    ledger.arrange(list(settings.runs), settings.families)
    results.save(folder / "results.json")
    return results


def _desk(backbone: str | Path | Backbone, processor: Processor | None) -> tuple[Desk, str]:
    """Load what is not loaded yet, and say what the model is called."""
    if isinstance(backbone, Backbone):
        loaded, name = backbone, model_name(backbone.model)
    else:
        loaded, name = load_backbone(locate(backbone)), model_name(backbone)
    return Desk(loaded, processor or load_processor(loaded.model)), name


def _unreduced(desk: Desk, first: Item) -> Plan:
    """Write the full model as a plan without steps, for what it costs."""
    backbone = desk.backbone
    return Plan(
        visual_tokens=desk.visual_tokens(first),
        num_layers=backbone.num_layers,
        dims=backbone.dims,
        text_tokens=text_length(backbone.model),
        steps=(),
    )


@dataclass
class _Evaluation:
    """The part that is still to be done: what is asked now, and what was already answered."""

    desk: Desk
    task: Task
    asked: Settings
    ledger: Ledger
    watch: Watch | None

    def run(self, folder: Path) -> None:
        """Ask what has not been answered."""
        self._tell()
        missing = [name for name in self.asked.families if not self._complete(name)]
        if missing:
            model = self.desk.backbone.model
            found = environment(
                seed=self.asked.seed,
                device=str(device_of(model)),
                dtype=str(model.dtype).removeprefix("torch."),
            )
            write_atomically(folder / "env.json", json.dumps(found, indent=2) + "\n")
        for family in missing:
            items = [self._item(family, number) for number in range(self.asked.limit)]
            self._check_unchanged(family, items)
            new_tokens = self.desk.room_for(items)
            for batch in batches(items, self.asked.batch_size):
                self._ask(family, batch, new_tokens)

    def _item(self, family: str, number: int) -> Item:
        item = self.task.item(self.asked.split, family, number=number, seed=self.asked.seed)
        return blanked(item) if self.asked.blank else item

    def _ask(self, family: str, batch: Batch, new_tokens: int) -> None:
        """Let every run that lacks an answer to one of these questions answer all of them."""
        lacking = {
            run: plan
            for run, plan in self.asked.runs.items()
            if any(number not in self.ledger.of(run, family) for number in batch)
        }
        texts = self.desk.answers(batch.values(), lacking, new_tokens=new_tokens)
        for run, told in texts:
            predictions = [
                Prediction(
                    run=run,
                    id=item.id,
                    family=family,
                    number=number,
                    prediction=text,
                    answer=item.answer,
                    correct=self.task.correct(text, item.answer),
                    chance=item.chance,
                )
                for (number, item), text in zip(batch.items(), told, strict=True)
            ]
            self.ledger.append(predictions)
            self._tell()

    def _complete(self, family: str) -> bool:
        return all(self._count(run, family) == self.asked.limit for run in self.asked.runs)

    def _count(self, run: str, family: str) -> int:
        return len(self.ledger.of(run, family))

    def _tell(self) -> None:
        if self.watch is not None:
            pairs = [(run, family) for run in self.asked.runs for family in self.asked.families]
            done = sum(self._count(*pair) for pair in pairs)
            self.watch(done, len(pairs) * self.asked.limit)

    def _check_unchanged(self, family: str, items: list[Item]) -> None:
        """Refuse to go on if the questions are no longer those that were answered."""
        for run in self.asked.runs:
            for number, known in self.ledger.of(run, family).items():
                if (known.id, known.answer) != (items[number].id, items[number].answer):
                    raise DataError(
                        f"expected the answer {known.answer!r} to {known.id}, as when it was "
                        f"asked; found {items[number].answer!r}: the questions have changed since. "
                        "Name another folder"
                    )


def _check(task: Task, *, split: str, limit: int, batch_size: int) -> None:
    problems = []
    if split not in task.splits:
        problems.append(f"expected a split among {', '.join(task.splits)}; found {split!r}")
    if limit < 2:
        problems.append(f"expected a limit of at least 2, for a standard error; found {limit}")
    if batch_size < 1:
        problems.append(f"expected a batch size of at least 1; found {batch_size}")
    if problems:
        raise ConfigError(numbered(problems))
