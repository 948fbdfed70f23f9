"""VQA accuracy: the normalisation of words and the ten-answer rule of the VQA evaluation server.

arXiv:1505.00468; the rules of EvalAI's script: punctuation, articles, number words, contractions.
"""

import re
from collections.abc import Sequence

_SIGNS = ';/[]"{}()=+\\_-><@`,?!'
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {"none": "0", **{word: str(number) for number, word in enumerate(_NUMBERS)}}
_ARTICLES = {"a", "an", "the"}
_PERIOD = re.compile(r"\.(?!\d)")
# a contraction that lacks one of its apostrophes gets it back
_CONTRACTIONS = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't
haven't he'd he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've
might've mustn't must've needn't not've o'clock oughtn't 'ow's'at shan't she'd've should've
shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd someone'd've someone'll
someone's something'd something'd've something'll that's there'd there'd've there're there's they'd
they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've
when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't
would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""
_RESTORED = {
    word[:place] + word[place + 1 :]: word
    for word in _CONTRACTIONS.split()
    for place in range(len(word))
    if word[place] == "'"
} | {"somebody'd": "somebodyd"}  # so in the server's table


def normalised(text: str) -> str:
    """Write a text as the evaluation server compares it.

    >>> normalised("The two dogs, dont!"), normalised("No. 7"), normalised("St. John's")
    ("2 dogs don't", 'no 7', "st john 's")
    """
    plain = text.lower().replace(",", "").replace("?", "").replace("'s", " 's")
    plain = plain.strip().replace("\n", " ").replace("\t", " ").strip()
    cut = plain
    for sign in _SIGNS:
        beside_blank = f"{sign} " in plain or f" {sign}" in plain
        cut = cut.replace(sign, "" if beside_blank else " ")
    words = [_DIGITS.get(word, word) for word in _PERIOD.sub("", cut).split()]
    return " ".join(_RESTORED.get(word, word) for word in words if word not in _ARTICLES)


def vqa_accuracy(text: str, answers: Sequence[str]) -> float:
    """Average over annotators how many of the others give this answer, three of them making 1.

    >>> round(vqa_accuracy("red", ["red"] * 3 + ["blue"] * 7), 3)
    0.9
    """
    said, given = normalised(text), [normalised(answer) for answer in answers]
    equal = given.count(said)
    others = [equal - (answer == said) for answer in given]
    return sum(min(1.0, count / 3) for count in others) / len(given)
