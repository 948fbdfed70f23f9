"""The paper's balanced_mix (App. A): five sources of LLaVA-mix-665K and ScienceQA.

What the paper leaves open is settled here: which samples belong to a source, equal shares, how a
source is sampled. `eos.data.mix_images` decides which images may be used, `eos.data.mix_files`
reads and writes. A sample's place in the order of its source is a hash of the seed and its name, so
that the same seed gives the same mixture, and a smaller one is the begin of a larger.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

SOURCES = ("yes-no", "scienceqa", "gqa", "textvqa", "conversation")
YES_NO, SCIENCEQA, GQA, TEXTVQA, CONVERSATION = SOURCES
COCO = "coco/"
FOLDERS = {"gqa/": GQA, "textvqa/": TEXTVQA}
SHORT = "Answer the question using a single word or phrase."
LETTER = "Answer with the option's letter from the given choices directly."
MARK = "<image>"
# what questions of the other data sets on COCO images say: VQAv2 and OKVQA, A-OKVQA, RefCOCO
FORMATS = (
    SHORT,
    LETTER,
    "Please provide a short description for this region",
    "Please provide the bounding box coordinate of the region",
)
LETTERS = "ABCDEFGHIJ"


def order_of(seed: int, name: str) -> int:
    """Place of a sample in the order of its source: a number of 64 bits."""
    digest = hashlib.blake2b(f"eos mix {seed} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def source_of(entry: Any) -> str | None:
    """Say to which source an entry of LLaVA-mix-665K belongs; None if to none of the five.

    >>> said = [{"from": "human", "value": "<image> Odd?"}, {"from": "gpt", "value": "It is."}]
    >>> source_of({"image": "coco/train2017/1.jpg", "conversations": said})
    'conversation'
    >>> source_of({"image": "vg/VG_100K/1.jpg", "conversations": said}) is None
    True
    """
    if not _is_sample(entry):
        return None
    image, turns = entry["image"], entry["conversations"]
    for folder, source in FOLDERS.items():
        if image.startswith(folder):
            return source
    if not image.startswith(COCO):
        return None
    questions = [turn["value"] for turn in turns if turn["from"] == "human"]
    if SHORT in questions[0]:
        return YES_NO if any(yes_no_pairs(turns)) else None
    asked_for = any(text in question for text in FORMATS for question in questions)
    return None if asked_for else CONVERSATION


def yes_no_pairs(turns: list[dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Give each question of a conversation that is answered by yes or no, with that answer."""
    for question, answer in zip(turns[::2], turns[1::2], strict=False):
        if answer["value"].strip().rstrip(".").lower() in ("yes", "no"):
            text = question["value"].replace(MARK, "").replace(SHORT, "").strip()
            yield text, answer["value"].strip().rstrip(".").capitalize()


def yes_no_sample(entry: Mapping[str, Any], order: int) -> dict[str, Any]:
    """Make a sample as POPE asks of one of an entry's yes/no questions, which the order picks."""
    pairs = list(yes_no_pairs(entry["conversations"]))
    question, answer = pairs[order % len(pairs)]
    return {
        "id": entry.get("id"),
        "image": entry["image"],
        "conversations": _turns(f"{MARK}\n{question}\n{SHORT}", answer),
    }


def science_sample(number: str, problem: Mapping[str, Any], image: str) -> dict[str, Any]:
    """Make a sample of a problem of ScienceQA, as LLaVA asks it."""
    context = f"Context: {problem['hint']}\n" if problem.get("hint") else ""
    options = [f"{LETTERS[i]}. {choice}" for i, choice in enumerate(problem["choices"])]
    lines = [f"{context}{problem['question']}", *options, LETTER]
    said = _turns("\n".join([MARK, *lines]), LETTERS[problem["answer"]])
    return {"id": f"scienceqa-{number}", "image": image, "conversations": said}


def in_turns(streams: Iterable[Iterator[Any]]) -> Iterator[Any]:
    """Take one of each stream in turn; an exhausted one is passed over.

    >>> list(in_turns([iter([1, 2, 3]), iter([4])]))
    [1, 4, 2, 3]
    """
    left = list(streams)
    while left:
        for stream in list(left):
            found = next(stream, None)
            if found is None:
                left.remove(stream)
            else:
                yield found


def _is_sample(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("image"), str):
        return False
    turns = entry.get("conversations")
    if not isinstance(turns, list) or len(turns) < 2:
        return False
    return all(
        isinstance(turn, dict)
        and turn.get("from") == ("human", "gpt")[place % 2]
        and isinstance(turn.get("value"), str)
        for place, turn in enumerate(turns)
    )


def _turns(question: str, answer: str) -> list[dict[str, str]]:
    return [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
