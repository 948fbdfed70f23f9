"""Prompts: what is written around a question, as LLaVA-1.5's and Qwen's evaluations do.

LLaVA: docs/Evaluation.md of its repository, and for later benchmarks lmms-eval's default, which
continues it. Qwen: what VLMEvalKit, with which Qwen2-VL and its successors are evaluated, asks.
"""

from collections.abc import Callable

from eos.evaluation.benchmarks.questions import LETTERS, Query

STYLES = ("llava", "qwen")
YES_NO = " Please answer yes or no."
WORD = {
    "llava": "\nAnswer the question using a single word or phrase.",
    "qwen": "\nPlease try to answer the question with short words or phrases if possible.",
}
ONE_WORD = "\nAnswer the question with a single word."
LETTER = "\nAnswer with the option's letter from the given choices directly."
SELECT = "\nPlease select the correct answer from the options above."


def short(question: Query, style: str) -> str:
    """Ask for a word or phrase."""
    return question.text + WORD[style]


def yes_or_no(question: Query, style: str) -> str:
    """Ask for yes or no; LLaVA's evaluation asks for a word instead."""
    plain = question.text.replace(YES_NO, "")
    return plain + (YES_NO if style == "qwen" else WORD["llava"])


def as_it_is(question: Query, style: str) -> str:
    """Ask nothing but the question, which has its own instruction."""
    return question.text


def letter(question: Query, style: str) -> str:
    """Ask for the letter of an option that the question lists itself."""
    return f"Question: {question.text}{SELECT}" if style == "qwen" else question.text + LETTER


def choice(context: str = "") -> Callable[[Query, str], str]:
    """List the options and ask for a letter; ``context`` stands before a hint."""

    def prompt(question: Query, style: str) -> str:
        listed = [f"{x}. {text}" for x, text in zip(LETTERS, question.options, strict=False)]
        if style == "qwen":
            hint = [f"Hint: {question.hint}"] if question.hint else []
            return "\n".join([*hint, f"Question: {question.text}", "Options:", *listed]) + SELECT
        hint = [context + question.hint] if question.hint else []
        return "\n".join([*hint, question.text, *listed]) + LETTER

    return prompt


def word(question: Query, style: str) -> str:
    """Ask for a word, as lmms-eval does for charts."""
    return question.text + (WORD["qwen"] if style == "qwen" else ONE_WORD)
