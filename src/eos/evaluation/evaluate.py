"""Evaluate: let the full model and plans answer the same questions, and compare them pairwise.

All runs answer a batch before the next one, so that its images are loaded once. Batches
follow from the settings alone, never from what is already answered or by how many processes, which
take them in turn: a resumed or shared evaluation ends with exactly the results of an uninterrupted
one. The first process writes all files but the others' parts of the predictions.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from eos.data.samples import Source
from eos.data.settings import DataConfig
from eos.errors import ConfigError, DataError, numbered
from eos.evaluation.answering import Answerer, QuestionBatch, batches, blanked
from eos.evaluation.benchmarks.task import DEFAULT_STYLE
from eos.evaluation.ledger import Ledger, Prediction
from eos.evaluation.own_data import MetricName, choose_task
from eos.evaluation.results import Results
from eos.evaluation.settings import Settings, join_folder
from eos.evaluation.specs import named_plans
from eos.evaluation.summary import summarise
from eos.evaluation.tasks import Item, Task
from eos.models.backbone import Backbone, load_backbone
from eos.models.devices import environment_of
from eos.models.processor import (
    Processor,
    fingerprint,
    load_processor,
    locate,
    model_name,
    text_length,
)
from eos.runs.files import write_atomically
from eos.runs.lock import locked
from eos.runs.processes import Processes
from eos.space.plan import Plan

AnswersWatch = Callable[[int, int], None]
DEFAULT_SPLIT = "test"
IN_MEMORY = 1024  # questions whose images are held at once


def evaluate(
    backbone: str | Path | Backbone,
    plans: Mapping[str, Plan] | Iterable[str | Plan] | str = (),
    *,
    out: str | Path,
    task: str | None = None,
    split: str | None = None,
    data: Source | DataConfig | str | Path | None = None,
    metric: MetricName | None = None,
    prompts: str = DEFAULT_STYLE,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 16,
    blank: bool = False,
    processor: Processor | None = None,
    watch: AnswersWatch | None = None,
) -> Results:
    """Let the full model and every plan answer the same questions; resume what ``out`` holds.

    Under `accelerate launch` the processes share out the questions; all return the same results.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as out:
    ...     found = evaluate("miniature", ["fastv@64"], out=out, task="mini:digit", limit=2)
    >>> [row.name for row in found.rows]
    ['full', 'fastv@64']

    Args:
        backbone: a name, a folder, or a model that is already loaded.
        plans: by name; or as the command line names them, such as ``fastv@64`` or a file.
        out: folder for config.json, env.json, predictions.jsonl and results.json; with data, also
            skipped.jsonl, which names the samples that could not be used.
        task: name of a task, all of its families; ``mini:presence,counting`` takes these only; by
            default ``mini``. Or a published benchmark, such as ``pope``.
        split: which of the task's sets of questions; by default ``test``; a benchmark has one.
        data: conversations instead of a task: a source, or settings such as
            ``LlavaData(file=..., images=...)``; the last answer of each is the reference. Of a
            benchmark, its folder (docs/benchmarks.md); if None, its Hugging Face dataset.
        metric: of data: ``contains``, the reference occurs in the prediction as whole words, or
            ``exact``, the prediction has its words and no others; by default ``contains``.
        prompts: of a benchmark: ``llava`` or ``qwen``.
        limit: most questions of each family, by default 100, of a benchmark all; a task or the
            data may have fewer.
        seed: of the questions.
        batch_size: how many questions at once.
        blank: replace images by grey ones, to see what can be answered without them.
        processor: of a model that was not loaded from a name or a folder.
        watch: called with the number of answers so far, and of all, whenever the first changes;
            by the first process only.
    """
    processes = Processes()
    processes.refuse_sharding()
    chosen, limit = choose_task(
        task, split, data=data, metric=metric, prompts=prompts, limit=limit, seed=seed
    )
    split = split or (DEFAULT_SPLIT if chosen.data is None else chosen.splits[0])
    _check(chosen, split=split, limit=limit, batch_size=batch_size)
    answerer, name = _answerer(backbone, processor)
    first = chosen.item(split, next(iter(chosen.families)), number=0, seed=seed)
    unreduced = _unreduced(answerer, first)
    settings = Settings(
        backbone=name,
        fingerprint=fingerprint(answerer.backbone.model),
        task=chosen.name,
        families=tuple(chosen.families),
        split=split,
        limit=limit,
        seed=seed,
        blank=blank,
        batch_size=batch_size,
        plans=named_plans(plans, answerer.backbone, visual_tokens=unreduced.visual_tokens),
        data=chosen.data,
    )
    folder = Path(out)
    with locked(folder, main=processes.main):
        joined = join_folder(settings, folder)
        ledger = Ledger(folder / "predictions.jsonl", rank=processes.rank)
        processes.wait()  # until all have read what is there
        if processes.main:
            joined.save(folder / "config.json")
            _note_skipped(folder, chosen)
        _Evaluation(answerer, chosen, settings, ledger, processes, watch).run(folder)
        if processes.main:
            results = summarise(joined, chosen, ledger, unreduced=unreduced)
            ledger.arrange(list(joined.runs), joined.families)
            results.save(folder / "results.json")
        processes.wait()
    return results if processes.main else Results.load(folder / "results.json")


def _note_skipped(folder: Path, task: Task) -> None:
    """Name the samples that could not be used in ``skipped.jsonl``."""
    if task.data is not None:
        lines = [json.dumps(asdict(x), ensure_ascii=False) + "\n" for x in task.skipped]
        write_atomically(folder / "skipped.jsonl", "".join(lines))


def _answerer(backbone: str | Path | Backbone, processor: Processor | None) -> tuple[Answerer, str]:
    """Load the model and its processor unless they are given; name the model."""
    if isinstance(backbone, Backbone):
        loaded, name = backbone, model_name(backbone.model)
    else:
        loaded, name = load_backbone(locate(backbone)), model_name(backbone)
    return Answerer(loaded, processor or load_processor(loaded.model)), name


def _unreduced(answerer: Answerer, first: Item) -> Plan:
    """Write the full model as a plan without steps, to compute its cost."""
    backbone = answerer.backbone
    return Plan(
        visual_tokens=answerer.visual_tokens(first),
        num_layers=backbone.num_layers,
        dims=backbone.dims,
        text_tokens=text_length(backbone.model),
        steps=(),
    )


@dataclass
class _Evaluation:
    """Answers the questions of one evaluation that the ledger does not hold yet."""

    answerer: Answerer
    task: Task
    settings: Settings
    ledger: Ledger
    processes: Processes
    watch: AnswersWatch | None
    turn: int = 0  # of batches, whichever process takes them

    def run(self, folder: Path) -> None:
        """Answer every question that some run has not answered, here or in another process."""
        self._report_progress()
        missing = [name for name in self._counts if not self._complete(name)]
        if missing and self.processes.main:
            model = self.answerer.backbone.model
            found = environment_of(model, seed=self.settings.seed)
            write_atomically(folder / "env.json", json.dumps(found, indent=2) + "\n")
        for family in missing:
            step = self.task.in_memory or IN_MEMORY
            for start in range(0, self._counts[family], step):
                stop = min(start + step, self._counts[family])
                self._answer_range(family, range(start, stop))
        self.processes.wait()
        if self.processes.count > 1:
            self._report_progress()

    def _answer_range(self, family: str, numbers: range) -> None:
        items = {number: self._item(family, number) for number in numbers}
        self._check_unchanged(family, items)
        length = self.task.max_new_tokens or self.answerer.answer_length(
            items.values(), spare=self.task.spare_tokens
        )
        size = self.settings.batch_size
        for batch in batches(items, size, visual_size=self.answerer.visual_size):
            if self.turn % self.processes.count == self.processes.rank:
                self._answer(family, batch, length)
            self.turn += 1

    @cached_property
    def _counts(self) -> dict[str, int]:
        return self.task.counts(self.settings.split, self.settings.limit)

    def _item(self, family: str, number: int) -> Item:
        item = self.task.item(self.settings.split, family, number=number, seed=self.settings.seed)
        return blanked(item) if self.settings.blank else item

    def _answer(self, family: str, batch: QuestionBatch, max_new_tokens: int) -> None:
        """Let every run that lacks an answer to one of these questions answer all of them."""
        lacking = {
            run: plan
            for run, plan in self.settings.runs.items()
            if any(number not in self.ledger.of(run, family) for number in batch)
        }
        answers = self.answerer.answers(batch.values(), lacking, max_new_tokens=max_new_tokens)
        for run, texts in answers:
            predictions = [
                Prediction(
                    run=run,
                    id=item.id,
                    family=family,
                    number=number,
                    prediction=text,
                    answers=item.answers,
                    score=self._score(text, item),
                    chance=item.chance,
                )
                for (number, item), text in zip(batch.items(), texts, strict=True)
            ]
            self.ledger.append(predictions)
            self._report_progress()

    def _score(self, text: str, item: Item) -> float:
        found = float((item.metric or self.task.metric)(text, item.answers))
        if not 0 <= found <= 1:
            raise DataError(
                f"expected a score between 0 and 1 from the metric of {self.task.name}, found "
                f"{found} for {text!r} to {item.id}; correct the metric and rerun to resume"
            )
        return found

    def _complete(self, family: str) -> bool:
        return all(self._count(run, family) >= self._counts[family] for run in self.settings.runs)

    def _count(self, run: str, family: str) -> int:
        return len(self.ledger.of(run, family))

    def _report_progress(self) -> None:
        if self.processes.count > 1 and self.processes.main:
            self.ledger.refresh()
        if self.watch is not None and self.processes.main:
            runs = self.settings.runs
            done = sum(self._count(run, family) for run in runs for family in self._counts)
            self.watch(done, len(runs) * sum(self._counts.values()))

    def _check_unchanged(self, family: str, items: Mapping[int, Item]) -> None:
        """Refuse to resume if the questions are no longer those that were answered."""
        for run in self.settings.runs:
            answered = self.ledger.of(run, family)
            for number in answered.keys() & items.keys():
                known, item = answered[number], items[number]
                if (known.id, known.answers) != (item.id, item.answers):
                    raise DataError(
                        f"expected the answers {list(known.answers)} to {known.id}, as when it was "
                        f"answered; found {list(item.answers)} to {item.id}: the questions have "
                        "changed since. Use another folder"
                    )


def _check(task: Task, *, split: str, limit: int, batch_size: int) -> None:
    problems = []
    if split not in task.splits:
        problems.append(f"expected a split among {', '.join(task.splits)}; found {split!r}")
    if limit < 2:
        problems.append(f"expected a limit of at least 2, for a standard error; found {limit}")
    problems += [
        f"expected at least 2 questions of {family} in {split}, for a standard error; found "
        f"{count}. Leave the family out"
        for family, count in task.counts(split, max(2, limit)).items()
        if count < 2 and task.totals is None
    ]
    if batch_size < 1:
        problems.append(f"expected a batch size of at least 1; found {batch_size}")
    if problems:
        raise ConfigError(numbered(problems))
