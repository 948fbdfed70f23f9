"""Scenes: images drawn from a random generator, with a description of what they show.

Five kinds. In a full scene of objects the colours' counts are a shuffled 5, 4, 3, 2, 1, 0, 0, 0 and
so are the shapes': then every count is equally frequent, and no guess without the image is better
than chance. Knows nothing of questions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eos.miniature.digits import handwritten
from eos.miniature.drawing import Image, Mask, arrow, glyph, segment, sprite, stamp

Random = np.random.Generator
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels

COLORS = {
    "red": (225, 40, 45),
    "green": (45, 165, 60),
    "blue": (45, 75, 230),
    "yellow": (240, 220, 50),
    "purple": (150, 50, 190),
    "orange": (245, 135, 30),
    "cyan": (50, 205, 215),
    "pink": (250, 150, 195),
}
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring", "star", "moon")
PLURALS = {shape: "crosses" if shape == "cross" else f"{shape}s" for shape in SHAPES}
SIZES = {"small": 12, "large": 16}
LETTERS = ("A", "B", "C", "D", "E", "F")
WHITE = (240, 240, 240)
DIGIT = 16  # pixels a digit is wide and high
OBJECT_SHARES = (0.4, 0.67, 1.0)  # of the most objects that a scene has: 6, 10 or 15 of them
HIGHEST = 9  # the largest value of a bar


@dataclass(frozen=True)
class Thing:
    """Something in an image: an object, a digit, a bar, a node of a diagram.

    Attributes:
        kind: "shape", "digit", "bar" or "node".
        name: shape, digit, value or letter.
        color: its colour's name.
        size: "small" or "large" for shapes, else "".
        box: where it is.
    """

    kind: str
    name: str
    color: str
    box: Box
    size: str = ""

    @property
    def center(self) -> tuple[float, float]:
        """The middle of its box, in pixels."""
        left, top, right, bottom = self.box
        return (left + right) / 2, (top + bottom) / 2


@dataclass(frozen=True)
class WorldScene:
    """An image and a description of what it shows.

    Attributes:
        kind: one of ``SCENE_KINDS``.
        pixels: ``[S, S, 3]``, 8 bits.
        things: everything that questions are about; bars from left to right.
        links: from letter to letter, in diagrams.
        strokes: the arrows' masks, in the order of ``links``; labels of patches follow from them.
    """

    kind: str
    pixels: NDArray[np.uint8]
    things: tuple[Thing, ...]
    links: tuple[tuple[str, str], ...] = ()
    strokes: tuple[Mask, ...] = ()

    def of(self, kind: str) -> list[Thing]:
        """The things of one kind."""
        return [thing for thing in self.things if thing.kind == kind]


Links = tuple[tuple[str, str], ...]
Content = tuple[tuple[Thing, ...], Links, tuple[Mask, ...]]  # things, links and strokes of a scene


def draw_scene(
    kind: str, rng: Random, *, size: int = 96, split: str = "train", share: float = 1.0
) -> WorldScene:
    """Draw a scene of a kind.

    Handwritten digits are those of the split; a share below one draws fewer objects.
    """
    image = _background(rng, size)
    things, links, strokes = SCENE_KINDS[kind](image, rng, split, share)
    speckled = image + rng.integers(-7, 8, image.shape)
    pixels = np.clip(np.floor(speckled + 0.5), 0, 255).astype(np.uint8)
    return WorldScene(kind, pixels, things, links, strokes)


def _background(rng: Random, size: int) -> Image:
    """A dark ground with faint strokes as clutter."""
    image = np.zeros((size, size, 3)) + rng.integers(18, 50)
    for _ in range(size * size // 700):
        x, y = rng.integers(2, size - 2, 2)
        dx, dy = rng.integers(-3, 4, 2)
        grey = int(rng.integers(60, 130))
        mask = segment(8, (4.0, 4.0), (4.0 + dx, 4.0 + dy), width=0.8)
        stamp(image, mask, (min(int(x), size - 8), min(int(y), size - 8)), (grey,) * 3)
    return image


def _tint(rng: Random, color: str) -> tuple[int, ...]:
    return tuple(int(channel + rng.integers(-12, 13)) for channel in COLORS[color])


def _trait_counts(size: int, share: float) -> tuple[int, ...]:
    """Number of objects of each colour (and of each shape): as many as fit into the image."""
    most = round(size * size / 614 * share)
    counts: list[int] = []
    while sum(counts) + len(counts) + 1 <= most:
        counts.append(len(counts) + 1)
    return tuple(counts)


def _shuffled(rng: Random, values: Sequence[str], counts: Sequence[int]) -> list[str]:
    chosen = rng.permutation(len(values))[: len(counts)]
    labels = [
        values[place] for place, count in zip(chosen, counts, strict=True) for _ in range(count)
    ]
    return [labels[place] for place in rng.permutation(len(labels))]


def _place_boxes(
    rng: Random, size: int, sides: Sequence[int], taken: Sequence[Box] = ()
) -> list[Box]:
    """Find boxes of the given sides that do not overlap, largest first."""
    order = sorted(range(len(sides)), key=lambda place: -sides[place])
    while True:
        boxes: dict[int, Box] = {}
        for place in order:
            side = sides[place]
            for x, y in rng.integers(0, size - side + 1, (60, 2)).tolist():
                box = (x, y, x + side, y + side)
                if not any(_overlap(box, other) for other in (*boxes.values(), *taken)):
                    boxes[place] = box
                    break
            else:
                break
        if len(boxes) == len(sides):
            return [boxes[place] for place in range(len(sides))]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _draw_shapes(
    image: Image, rng: Random, counts: Sequence[int], taken: Sequence[Box] = ()
) -> list[Thing]:
    colors, shapes = _shuffled(rng, tuple(COLORS), counts), _shuffled(rng, SHAPES, counts)
    sizes = [("small", "large")[bit] for bit in rng.integers(0, 2, len(colors))]
    boxes = _place_boxes(rng, len(image), [SIZES[size] for size in sizes], taken)
    things = []
    for color, shape, size, box in zip(colors, shapes, sizes, boxes, strict=True):
        stamp(image, sprite(shape, SIZES[size]), box[:2], _tint(rng, color))
        things.append(Thing("shape", shape, color, box, size))
    return things


def _objects(image: Image, rng: Random, split: str, share: float) -> Content:
    return tuple(_draw_shapes(image, rng, _trait_counts(len(image), share))), (), ()


def _draw_digit(
    image: Image, rng: Random, split: str, *, color: str, corner: tuple[int, int]
) -> Thing:
    name, mask = handwritten(rng, split)
    stamp(image, mask, corner, _tint(rng, color))
    x, y = corner
    return Thing("digit", name, color, (x, y, x + DIGIT, y + DIGIT))


def _digits(image: Image, rng: Random, split: str, share: float) -> Content:
    count = max(2, len(image) // 24)
    colors = rng.permutation(list(COLORS))[:count]
    boxes = _place_boxes(rng, len(image), [DIGIT] * count)
    digits = [
        _draw_digit(image, rng, split, color=str(color), corner=box[:2])
        for color, box in zip(colors, boxes, strict=True)
    ]
    shapes = _draw_shapes(image, rng, _trait_counts(len(image), 0.5), boxes)
    return (*digits, *shapes), (), ()


def _strings(image: Image, rng: Random, split: str, share: float) -> Content:
    size = len(image)
    rows, length = size // 32, min(4, size // DIGIT - 1)
    colors = rng.permutation(list(COLORS))[:rows]
    pitch = DIGIT - 1
    things = []
    for row, color in enumerate(colors):
        x = int(rng.integers(0, size - length * pitch))
        y = row * 32 + int(rng.integers(0, 32 - DIGIT + 1))
        things += [
            _draw_digit(image, rng, split, color=str(color), corner=(x + place * pitch, y))
            for place in range(length)
        ]
    return tuple(things), (), ()


def _chart(image: Image, rng: Random, split: str, share: float) -> Content:
    size = len(image)
    count, unit = size // 16, (size - 6) // 10
    floor = size - 3
    width = int(rng.integers(8, 12))
    colors = rng.permutation(list(COLORS))[:count]
    values = rng.integers(1, HIGHEST + 1, count).tolist()
    things = []
    for place, (color, value) in enumerate(zip(colors, values, strict=True)):
        x = place * 16 + int(rng.integers(1, 16 - width))
        top = floor - value * unit
        stamp(image, np.ones((value * unit, width)), (x, top), _tint(rng, str(color)))
        things.append(Thing("bar", str(value), str(color), (x, top, x + width, floor)))
    for level in range(1, HIGHEST + 1):  # ticks at the left border, to measure by
        stamp(image, np.ones((1, 2)), (0, floor - level * unit), WHITE)
    stamp(image, np.ones((1, size)), (0, floor), WHITE)
    return tuple(things), (), ()


def _diagram(image: Image, rng: Random, split: str, share: float) -> Content:
    """Boxes with letters on a loose grid; every box but one sends an arrow to a neighbour."""
    size = len(image)
    cells = size // 32 if size >= 64 else 2
    pitch, count = size // cells, min(len(LETTERS), cells * cells - (cells == 2))
    spots = [(int(s) % cells, int(s) // cells) for s in rng.permutation(cells * cells)[:count]]
    letters = [LETTERS[place] for place in rng.permutation(len(LETTERS))[:count]]
    colors = [str(color) for color in rng.permutation(list(COLORS))[:count]]
    things = []
    for letter, color, (column, row) in zip(letters, colors, spots, strict=True):
        dx, dy = rng.integers(0, pitch - 20 - (pitch > 24), 2)
        x, y = column * pitch + int(dx), row * pitch + int(dy)
        stamp(image, np.ones((16, 14)), (x, y), _tint(rng, color))
        stamp(image, glyph(letter), (x + 2, y + 1), (10, 10, 10))
        things.append(Thing("node", letter, color, (x, y, x + 14, y + 16)))
    return tuple(things), *_draw_arrows(image, rng, things, spots)


def _draw_arrows(
    image: Image, rng: Random, nodes: Sequence[Thing], spots: Sequence[tuple[int, int]]
) -> tuple[Links, tuple[Mask, ...]]:
    """Send an arrow from each box to a neighbouring one, never back along another arrow."""
    links: dict[str, str] = {}
    strokes = []
    for source in rng.permutation(len(nodes)).tolist():
        near = [
            target
            for target in rng.permutation(len(nodes)).tolist()
            if target != source
            and max(abs(spots[source][axis] - spots[target][axis]) for axis in (0, 1)) == 1
            and links.get(nodes[target].name) != nodes[source].name
        ]
        if not near:
            continue
        links[nodes[source].name] = nodes[near[0]].name
        mask = arrow(len(image), *_between(nodes[source], nodes[near[0]]))
        stamp(image, mask, (0, 0), WHITE)
        strokes.append(mask)
    return tuple(links.items()), tuple(strokes)


def _between(source: Thing, target: Thing) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow starts and ends: just outside the two boxes, on the line of their middles."""
    (x1, y1), (x2, y2) = source.center, target.center
    reach = max(abs(x2 - x1) / 8.5, abs(y2 - y1) / 9.5)  # how many half boxes apart
    dx, dy = (x2 - x1) / reach, (y2 - y1) / reach
    return (x1 + dx, y1 + dy), (x2 - dx, y2 - dy)


SCENE_KINDS: dict[str, Callable[[Image, Random, str, float], Content]] = {
    "objects": _objects,
    "digits": _digits,
    "strings": _strings,
    "chart": _chart,
    "diagram": _diagram,
}
