"""Answers: what a model's words say, and the sums that most benchmarks are made of."""

import re
import string
from collections.abc import Sequence

from eos.evaluation.benchmarks.questions import LETTERS, Query, Reply
from eos.evaluation.totals import Figure, mean

_LETTER = re.compile(r"\(?([A-H])(?:[.):,]|$)")
_SAID = re.compile(r"(?:answer|option|choice)(?: is)?:?\s*\(?([A-H])\b")


def chosen_option(text: str, options: Sequence[str] | str) -> str | None:
    """Recognise an option: its letter first, or after "the answer is", or its text and no other's.

    >>> chosen_option("B. two", ["one", "two"]), chosen_option("The answer is (A).", "AB")
    ('B', 'A')
    >>> chosen_option("E", "ABCD"), chosen_option("A cat", ["a dog", "a cat"])
    (None, 'B')
    """
    plain = text.strip()
    known = LETTERS[: len(options)]
    if len(plain.strip(".()")) == 1:
        plain = plain.upper()
    found = _LETTER.match(plain) or _SAID.search(plain)
    if found is not None:
        return found[1] if found[1] in known else None
    texts = [] if isinstance(options, str) else [option.strip().casefold() for option in options]
    named = [x for x, option in zip(known, texts, strict=False) if option in plain.casefold()]
    exact = [x for x, option in zip(known, texts, strict=False) if option == plain.casefold()]
    return (exact or named)[0] if 1 in (len(exact), len(named)) else None


def option_of(text: str, question: Query) -> str | None:
    """Recognise one of a question's options."""
    return chosen_option(text, question.options or "ABCD")


def yes_no_of(text: str) -> str | None:
    """Recognise yes or no in the first sentence; "no" and "not" come before "yes".

    >>> yes_no_of("No, it is not."), yes_no_of("Yes."), yes_no_of("a dog")
    ('no', 'yes', None)
    """
    found = re.findall(r"\w+", text.strip().split(".")[0].casefold())
    if "no" in found or "not" in found:
        return "no"
    return "yes" if "yes" in found else None


def option_score(text: str, question: Query) -> float:
    """1 if the right option is recognised, otherwise 0."""
    return float(option_of(text, question) == question.answers[0])


def yes_no_score(text: str, question: Query) -> float:
    """1 if yes or no is recognised and right, otherwise 0."""
    return float(yes_no_of(text) == question.answers[0])


def same_text(text: str, question: Query) -> float:
    """1 if the answer is a reference, case and punctuation aside, otherwise 0."""
    return float(_bare(text) in map(_bare, question.answers))


def _bare(text: str) -> str:
    return text.strip().casefold().translate(str.maketrans("", "", string.punctuation)).strip()


def score_columns(answered: Sequence[Reply]) -> tuple[float, ...]:
    """Sum scores and questions."""
    return sum(x.score for x in answered), len(answered)


def option_columns(answered: Sequence[Reply]) -> tuple[float, ...]:
    """Sum scores, questions, and answers in which no option is recognised."""
    lost = sum(option_of(x.text, x.question) is None for x in answered)
    return *score_columns(answered), lost


ACCURACY: dict[str, Figure] = {"accuracy": mean()}
OPTIONS: dict[str, Figure] = {"accuracy": mean(), "unrecognised": mean(2)}
