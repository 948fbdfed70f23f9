"""Own data: a task made of a source of conversations, such as LLaVA's JSON.

The last answer of a conversation is the reference, what stands before it the prompt. Samples are
drawn by the seed; those that cannot be used are skipped and counted.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from eos.data.order import permutation
from eos.data.samples import Sample, Skipped, Source, UnusableError
from eos.data.settings import DataConfig
from eos.data.sources import open_source
from eos.errors import ConfigError, DataError
from eos.evaluation.benchmarks.registry import BENCHMARKS
from eos.evaluation.benchmarks.task import benchmark_task
from eos.evaluation.tasks import Item, Metric, Task, TaskFamily, find_task

MetricName: TypeAlias = Literal["exact", "contains"]
DEFAULT_TASK = "mini"
DEFAULT_LIMIT = 100  # questions of a family
DEFAULT_METRIC: MetricName = "contains"
GROUP = "data"
SPLIT = "all"
SPARE_TOKENS = 32  # of an answer beyond the longest reference: models put words around an answer
LEAST = 2  # questions, for a standard error
# a number with its sign, or a word with its apostrophes; all other punctuation separates words
_WORD = re.compile(r"(?<!\w)-?\d+(?:[.,:/]\d+)*|\w+(?:['’]\w+)*")


def words_of(text: str) -> list[str]:
    """Cut a text into words, case and punctuation aside; signs alone are words themselves.

    >>> words_of(" It's RED,  -3.5 m."), words_of("++")
    (["it's", 'red', '-3.5', 'm'], ['++'])
    """
    folded = text.casefold()
    return _WORD.findall(folded) or folded.split()


def same_words(prediction: str, answers: Sequence[str]) -> float:
    """1 if the prediction has the words of a reference and no others, otherwise 0.

    >>> same_words("Red.", ["red"]), same_words("It is red.", ["red"])
    (1.0, 0.0)
    """
    found = words_of(prediction)
    return float(any(found == words_of(answer) for answer in answers))


def contains_words(prediction: str, answers: Sequence[str]) -> float:
    """1 if the words of a reference occur in the prediction, whole and in a row, otherwise 0.

    >>> contains_words("It is red.", ["red"]), contains_words("It is reddish.", ["red"])
    (1.0, 0.0)
    """
    found = words_of(prediction)
    return float(any(_occurs(words_of(answer), found) for answer in answers))


def _occurs(part: list[str], whole: list[str]) -> bool:
    starts = range(len(whole) - len(part) + 1)
    return bool(part) and any(whole[at : at + len(part)] == part for at in starts)


def choose_task(
    task: str | None,
    split: str | None,
    *,
    data: Source | DataConfig | str | Path | None,
    metric: MetricName | None,
    prompts: str,
    limit: int | None,
    seed: int,
) -> tuple[Task, int]:
    """Find a task by name, or make one of data or a benchmark; give the most questions, too."""
    if metric is not None and (data is None or task in BENCHMARKS):
        raise ConfigError(f"expected metric with data only; found {metric!r} for a task")
    if task in BENCHMARKS:
        if not isinstance(data, (str, Path, type(None))):
            raise ConfigError(f"expected a folder as data of {task}; found {type(data).__name__}")
        made = benchmark_task(BENCHMARKS[task], data, limit=limit, seed=seed, prompts=prompts)
        return made, limit or max(x.sizes[made.splits[0]] for x in made.families.values())
    if isinstance(data, (str, Path)):
        raise ConfigError(
            f"expected a benchmark with the folder {data}: {', '.join(BENCHMARKS)}; found {task!r}"
        )
    limit = DEFAULT_LIMIT if limit is None else limit
    if data is None:
        return find_task(task or DEFAULT_TASK, others=BENCHMARKS), limit
    if task is not None or split is not None:
        found = ", ".join(f"{x!r}" for x in (task, split) if x is not None)
        raise ConfigError(f"expected data, or a task and its split; found data and {found}")
    return own_task(data, metric=metric or DEFAULT_METRIC, limit=limit, seed=seed), limit


def own_task(data: Source | DataConfig, *, metric: MetricName, limit: int, seed: int) -> Task:
    """Make a task of conversations; its one family has the name of the metric.

    Args:
        data: a source, or where to find one.
        metric: ``exact``: the same words; ``contains``: the reference occurs as whole words.
        limit: most questions.
        seed: which draws them if there are more.
    """
    if metric not in METRICS:
        raise ConfigError(f"expected a metric of {', '.join(METRICS)}; found {metric!r}")
    source = open_source(data)
    indices, skipped, digest = draw_samples(source, limit=limit, seed=seed)

    def item(split: str, family: str, *, number: int, seed: int) -> Item:
        return item_of(source.sample(indices[number]))

    rule = (METRICS[metric].__doc__ or "").splitlines()[0].rstrip(".")
    return Task(
        name=GROUP,
        what="Conversations of one's own; the last answer is the reference.",
        note=(
            f"Data: {source.describe()}; {len(indices)} of {len(source)} samples, "
            f"{len(skipped)} unusable ones skipped. Score {metric!r}: {rule}; case, blanks "
            "and punctuation do not count."
        ),
        families={metric: TaskFamily(GROUP, sizes={SPLIT: len(indices)})},
        splits=(SPLIT,),
        item=item,
        metric=METRICS[metric],
        spare_tokens=SPARE_TOKENS,
        data=f"{source.describe()} {digest}",
        skipped=tuple(skipped),
    )


def draw_samples(source: Source, *, limit: int, seed: int) -> tuple[list[int], list[Skipped], str]:
    """Draw up to ``limit`` usable samples, all of them if there are no more.

    Returns:
        The samples' indices, those that could not be used on the way, and a digest of texts,
        images and answers.
    """
    indices: list[int] = []
    skipped: list[Skipped] = []
    digest = hashlib.sha256()
    for index in permutation(len(source), seed=seed):
        if len(indices) >= limit:
            break
        try:
            item = item_of(source.sample(index))
        except UnusableError as failure:
            skipped.append(Skipped(source.name(index), str(failure), failure.kind))
            continue
        indices.append(index)
        for part in _contents(item):
            digest.update(len(part).to_bytes(8, "big") + part)
    if len(indices) < min(LEAST, max(limit, 0)):
        reasons = " | ".join(sample.reason for sample in skipped[:3])
        raise DataError(
            f"expected at least {LEAST} usable samples in {source.describe()}, for a standard "
            f"error; found {len(indices)}" + (f". Skipped, such as: {reasons}" if reasons else "")
        )
    return indices, skipped, digest.hexdigest()[:16]


def item_of(sample: Sample) -> Item:
    """Make a question of a conversation, or raise `UnusableError`."""
    *prompt, last = sample.messages
    answer = " ".join(part.get("text", "") for part in last["content"]).strip()
    if last["role"] != "assistant" or not answer:
        raise UnusableError(f"{sample.id}: expected an answer last, found none")
    if not any(part["type"] == "image" for message in prompt for part in message["content"]):
        raise UnusableError(f"{sample.id}: expected an image, found none")
    return Item(prompt, (answer,), None, sample.id)


def _contents(item: Item) -> list[bytes]:
    """List what makes a question, as bytes: texts, images with their sizes, answers."""
    found = [item.id.encode(), *(answer.encode() for answer in item.answers)]
    for message in item.messages:
        for part in message["content"]:
            if part["type"] == "image":
                found += [repr(part["image"].size).encode(), part["image"].tobytes()]
            else:
                found.append(part["text"].encode())
    return found


METRICS: dict[str, Metric] = {"exact": same_words, "contains": contains_words}
