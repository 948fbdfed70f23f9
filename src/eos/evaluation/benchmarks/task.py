"""A benchmark as a task: its questions with prompts, its metric, its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eos.data.samples import load_image
from eos.errors import ConfigError
from eos.evaluation.benchmarks.loading import load
from eos.evaluation.benchmarks.prompts import STYLES
from eos.evaluation.benchmarks.questions import Benchmark, Query, Reply
from eos.evaluation.ledger import Prediction
from eos.evaluation.tasks import Item, Task, TaskFamily
from eos.evaluation.totals import Sums, Total, sums_of, totals

DEFAULT_STYLE = STYLES[0]
LEAST = 2  # questions, for a standard error
IN_MEMORY = 128  # questions at once: images of benchmarks have megapixels


def benchmark_task(
    benchmark: Benchmark,
    folder: str | Path | None,
    *,
    limit: int | None,
    seed: int,
    prompts: str = DEFAULT_STYLE,
) -> Task:
    """Make a task of a benchmark's questions.

    Args:
        benchmark: of `registry.BENCHMARKS`.
        folder: holds its files, or a folder of its name that does; if None, the hub's dataset.
        limit: most questions of each family, drawn by the seed; None for all.
        seed: which draws them.
        prompts: a style of `prompts.STYLES`.
    """
    if prompts not in STYLES:
        raise ConfigError(f"expected prompts of {', '.join(STYLES)}; found {prompts!r}")
    if limit is not None and limit < LEAST:
        raise ConfigError(f"expected a limit of at least {LEAST}; found {limit}")
    loaded = load(benchmark, None if folder is None else Path(folder), limit=limit, seed=seed)
    count = sum(map(len, loaded.questions.values()))
    questions = _Questions(benchmark, loaded.questions, prompts)
    return Task(
        name=benchmark.name,
        what=benchmark.what,
        note=(
            f"{benchmark.title} ({benchmark.paper}): {count} of {benchmark.size} questions, "
            f"{prompts} prompts. Metric: {benchmark.metric}."
        ),
        families={
            name: TaskFamily("all", sizes={benchmark.split: len(own)})
            for name, own in loaded.questions.items()
        },
        splits=(benchmark.split,),
        item=questions.item,
        metric=_no_metric,
        max_new_tokens=benchmark.max_new_tokens,
        data=f"{benchmark.name} {prompts} {loaded.digest}",
        skipped=loaded.skipped,
        totals=questions.totals,
        in_memory=IN_MEMORY,
    )


@dataclass(frozen=True)
class _Questions:
    """A benchmark's questions by family, and the style of its prompts."""

    benchmark: Benchmark
    questions: Mapping[str, Sequence[Query]]
    style: str

    def item(self, split: str, family: str, *, number: int, seed: int) -> Item:
        """Make question ``number`` of a family, with a metric of its own."""
        question = self.questions[family][number]
        image = load_image(question.image(), where=question.id)
        parts = [
            {"type": "image", "image": image},
            {"type": "text", "text": self.benchmark.prompt(question, self.style)},
        ]

        def score(prediction: str, answers: Sequence[str]) -> float:
            return self.benchmark.score(prediction, question)

        messages = [{"role": "user", "content": parts}]
        return Item(messages, question.answers, None, question.id, score)

    def totals(
        self,
        own: Mapping[str, Sequence[Prediction]],
        full: Mapping[str, Sequence[Prediction]] | None,
    ) -> dict[str, Total]:
        """Estimate the benchmark's figures from a run's predictions by family, in order."""
        sums = [self._sums(x) for x in (own, full) if x is not None]
        return totals(self.benchmark.figures, list(own), *sums)

    def _sums(self, predictions: Mapping[str, Sequence[Prediction]]) -> Sums:
        groups: dict[tuple[str, str], list[Reply]] = {}
        for family, found in predictions.items():
            for question, said in zip(self.questions[family], found, strict=True):
                reply = Reply(question, said.prediction, said.score)
                groups.setdefault((question.cluster, family), []).append(reply)
        columns = {key: self.benchmark.columns(group) for key, group in groups.items()}
        return sums_of(columns, list(predictions))


def _no_metric(prediction: str, answers: Sequence[str]) -> float:
    raise AssertionError("each question has its own metric")
