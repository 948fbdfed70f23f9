"""Questions about a scene, one function a family.

A family returns a question with its answer, or None if this scene does not allow an unambiguous
one. Answers are drawn so that the text alone does not predict them: the chance level of a question
is that of guessing evenly among the answers its wording allows.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar

from eos.miniature.scenes import COLORS, LETTERS, PLURALS, SHAPES, Random, Thing, WorldScene

MARGIN = 10.0  # pixels by which positions must differ to be compared
CLEARLY = 1.5  # times farther, for the second nearest object


@dataclass(frozen=True)
class Question:
    """A question about an image.

    Attributes:
        text: the question itself.
        answer: words separated by blanks.
        chance: probability of a right guess without the image.
        history: earlier turns of the conversation, as (question, answer).
        variant: a finer name within the family, such as the kind of a negative.
    """

    text: str
    answer: str
    chance: float
    history: tuple[tuple[str, str], ...] = ()
    variant: str = ""


MakesQuestion = Callable[[WorldScene, Random], Question | None]
T = TypeVar("T")


def _pick(rng: Random, values: list[T]) -> T:
    return values[int(rng.integers(0, len(values)))]


def _named(thing: Thing) -> str:
    return f"{thing.color} {thing.name}"


def _tally(scene: WorldScene, trait: str) -> Counter[str]:
    return Counter(map(attrgetter(trait), scene.of("shape")))


def _unique(scene: WorldScene) -> list[Thing]:
    """Objects that colour and shape together name without doubt."""
    seen = Counter(_named(thing) for thing in scene.of("shape"))
    return [thing for thing in scene.of("shape") if seen[_named(thing)] == 1]


def _only(scene: WorldScene, trait: str) -> list[Thing]:
    """Objects that are the only ones of their colour, or of their shape; every scene has some."""
    counts = _tally(scene, trait)
    return [thing for thing in scene.of("shape") if counts[attrgetter(trait)(thing)] == 1]


def _absent(scene: WorldScene, how: str, *, least: int = 1) -> list[str]:
    """Name pairs of colour and shape that are not in the scene: of a kind, or all if too few."""
    present = {(thing.color, thing.name) for thing in scene.of("shape")}
    colors, shapes = list(COLORS), list(SHAPES)
    if how != "random":
        colors = [color for color, _ in _tally(scene, "color").most_common()]
        shapes = [shape for shape, _ in _tally(scene, "name").most_common()]
    if how == "popular":
        colors, shapes = colors[:3], shapes[:3]
    pairs = [(c, s) for c in colors for s in shapes if (c, s) not in present]
    if len(pairs) < least:
        pairs = [(c, s) for c in COLORS for s in SHAPES if (c, s) not in present]
    return [f"{color} {shape}" for color, shape in pairs]


def presence(scene: WorldScene, rng: Random) -> Question:
    """Yes or no, evenly; the no's in three kinds, as POPE has them."""
    if rng.integers(0, 2):
        thing = _pick(rng, scene.of("shape"))
        return Question(f"is there a {_named(thing)} ?", "yes", 0.5, variant="present")
    how = _pick(rng, ["random", "popular", "adversarial"])
    return Question(f"is there a {_pick(rng, _absent(scene, how))} ?", "no", 0.5, variant=how)


def attribute(scene: WorldScene, rng: Random) -> Question:
    """Colour, shape or size of the one object that the rest names."""
    trait = _pick(rng, ["color", "shape", "size"])
    if trait == "size":
        thing = _pick(rng, _unique(scene))
        return Question(f"what size is the {_named(thing)} ?", thing.size, 0.5, variant=trait)
    if trait == "color":
        thing = _pick(rng, _only(scene, "name"))
        text, answer = f"what color is the {thing.name} ?", thing.color
    else:
        thing = _pick(rng, _only(scene, "color"))
        text, answer = f"what shape is the {thing.color} object ?", thing.name
    return Question(text, answer, 1 / 8, variant=trait)


def relation(scene: WorldScene, rng: Random) -> Question | None:
    """Which of two named objects is left of, or above, the other."""
    one, two = (_pick(rng, _unique(scene)) for _ in range(2))
    axis = int(rng.integers(0, 2))
    gap = two.center[axis] - one.center[axis]
    if abs(gap) < MARGIN:
        return None
    words = (("left", "right"), ("above", "below"))[axis]
    wording = ("left or right of", "above or below")[axis]
    text = f"is the {_named(one)} {wording} the {_named(two)} ?"
    return Question(text, words[gap < 0], 0.5, variant=wording)


def counting(scene: WorldScene, rng: Random) -> Question:
    """How many of a colour or of a shape, every number equally often."""
    trait, values = _pick(rng, [("color", tuple(COLORS)), ("name", SHAPES)])
    counts = _tally(scene, trait)
    most = max(counts.values())
    number = int(rng.integers(0, most + 1))
    value = _pick(rng, [value for value in values if counts[value] == number])
    which = f"{value} objects" if trait == "color" else PLURALS[value]
    text = f"how many {which} are there ?"
    return Question(text, str(number), 1 / (most + 1), variant=trait)


def comparison(scene: WorldScene, rng: Random) -> Question:
    """Which of two colours, or of two shapes, is more frequent."""
    trait = _pick(rng, ["color", "name"])
    counts = _tally(scene, trait)
    one, two = (str(value) for value in rng.permutation(sorted(counts))[:2])
    more = one if counts[one] > counts[two] else two
    if trait == "color":
        return Question(f"are there more {one} or {two} objects ?", more, 0.5, variant=trait)
    one, two, more = PLURALS[one], PLURALS[two], PLURALS[more]
    return Question(f"are there more {one} or {two} ?", more, 0.5, variant=trait)


def nearest_object(scene: WorldScene, thing: Thing) -> Thing | None:
    """The object nearest to another, if it is clearly the nearest."""
    x, y = thing.center
    others = [other for other in scene.of("shape") if other is not thing]
    ranked = sorted(
        (((o.center[0] - x) ** 2 + (o.center[1] - y) ** 2), i) for i, o in enumerate(others)
    )
    if not ranked or (len(ranked) > 1 and ranked[1][0] < ranked[0][0] * CLEARLY**2):
        return None
    return others[ranked[0][1]]


def _beside(scene: WorldScene, rng: Random, thing: Thing) -> tuple[str, str] | None:
    """Pick colour or shape of the object nearest to another one, if they differ in it.

    Were they allowed to agree, naming the known object's own trait would beat chance.
    """
    other = nearest_object(scene, thing)
    trait = _pick(rng, ["color", "shape"])
    if other is None or (
        other.color == thing.color if trait == "color" else other.name == thing.name
    ):
        return None
    return trait, other.color if trait == "color" else other.name


def nearest(scene: WorldScene, rng: Random) -> Question | None:
    """Two steps: find the named object, then describe the one beside it."""
    thing = _pick(rng, _unique(scene))
    found = _beside(scene, rng, thing)
    if found is None:
        return None
    text = f"what {found[0]} is the object nearest to the {_named(thing)} ?"
    return Question(text, found[1], 1 / 7, variant=found[0])


def followup(scene: WorldScene, rng: Random) -> Question | None:
    """A second question about what the first one found: only the conversation says which object."""
    thing = _pick(rng, _only(scene, "name"))
    found = _beside(scene, rng, thing)
    if found is None:
        return None
    first = (f"what color is the {thing.name} ?", thing.color)
    text = f"what {found[0]} is the object nearest to it ?"
    return Question(text, found[1], 1 / 7, history=(first,), variant=found[0])


def listing(scene: WorldScene, rng: Random) -> Question | None:
    """Name the shapes of one colour in order: every word needs its own place in the image."""
    counts = _tally(scene, "color")
    color = _pick(rng, [color for color in sorted(counts) if 2 <= counts[color] <= 4])
    found = sorted((t for t in scene.of("shape") if t.color == color), key=lambda t: t.center[0])
    if any(b.center[0] - a.center[0] < MARGIN for a, b in pairwise(found)):
        return None
    answer = " ".join(thing.name for thing in found)
    text = f"list the shapes of the {color} objects from left to right ."
    return Question(text, answer, 0.0)


def everything(scene: WorldScene, rng: Random) -> Question:
    """Name all objects in order; for training only, not evaluated."""
    found = sorted(scene.of("shape"), key=lambda t: (t.center[0], t.center[1]))
    answer = " ".join(_named(thing) for thing in found)
    return Question("list all objects from left to right .", answer, 0.0)


def choice(scene: WorldScene, rng: Random) -> Question:
    """Four different offers, one of them in the image."""
    right = int(rng.integers(0, 4))
    wrong = _absent(scene, "adversarial", least=3)
    offers = [wrong[place] for place in rng.permutation(len(wrong))[:3].tolist()]
    offers.insert(right, _named(_pick(rng, scene.of("shape"))))
    listed = " ".join(f"{letter} {offer}" for letter, offer in zip(LETTERS, offers, strict=False))
    return Question(f"which object is in the image ? {listed}", LETTERS[right], 0.25)


def digit(scene: WorldScene, rng: Random) -> Question:
    """Read one handwritten digit among several, named by its colour."""
    thing = _pick(rng, scene.of("digit"))
    return Question(f"which digit is {thing.color} ?", thing.name, 0.1)


def string(scene: WorldScene, rng: Random) -> Question:
    """Read a number of several handwritten digits, named by its colour."""
    color = _pick(rng, sorted({thing.color for thing in scene.things}))
    number = sorted((t for t in scene.things if t.color == color), key=lambda t: t.box[0])
    answer = " ".join(thing.name for thing in number)
    return Question(f"read the {color} number .", answer, 0.1 ** len(number))


def chart(scene: WorldScene, rng: Random) -> Question | None:
    """The value of a bar, or the colour of the highest or lowest one."""
    bars = scene.of("bar")
    if rng.integers(0, 2):
        bar = _pick(rng, bars)
        text = f"what is the value of the {bar.color} bar ?"
        return Question(text, bar.name, 1 / 9, variant="value")
    highest = bool(rng.integers(0, 2))
    ranked = sorted(bars, key=lambda bar: int(bar.name), reverse=highest)
    if ranked[0].name == ranked[1].name:
        return None
    text = f"what color is the {'highest' if highest else 'lowest'} bar ?"
    return Question(text, ranked[0].color, 1 / 8, variant="extreme")


def bars(scene: WorldScene, rng: Random) -> Question:
    """Read all bars in order."""
    values = [bar.name for bar in scene.of("bar")]
    return Question("read all bars from left to right .", " ".join(values), (1 / 9) ** len(values))


def link(scene: WorldScene, rng: Random) -> Question:
    """Follow one arrow."""
    source, target = _pick(rng, list(scene.links))
    chance = 1 / (len(LETTERS) - 1)
    return Question(f"where does the arrow from {source} lead ?", target, chance)


def path(scene: WorldScene, rng: Random) -> Question | None:
    """Follow two arrows."""
    links = dict(scene.links)
    starts = sorted(letter for letter in links if links.get(links[letter], letter) != letter)
    if not starts:
        return None
    start = _pick(rng, starts)
    chance = 1 / (len(LETTERS) - 1)
    return Question(f"where do two arrows from {start} lead ?", links[links[start]], chance)
