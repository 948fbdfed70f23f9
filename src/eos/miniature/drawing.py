"""Drawing: sprites, glyphs and strokes as masks, stamped onto an image.

Only additions, products, square roots and comparisons of numbers, so that an image is the same on
every machine. Knows nothing of scenes or questions.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float64]  # [S, S, 3], 0..255
Mask = NDArray[np.float64]  # [h, w], 0..1

FINE = 4  # subsamples in each direction
TIPS = (  # a five-pointed star: ten corners, outer and inner in turn, on the unit circle
    (0.0, -1.0),
    (0.2629, -0.3618),
    (0.9511, -0.3090),
    (0.4253, 0.1382),
    (0.5878, 0.8090),
    (0.0, 0.4472),
    (-0.5878, 0.8090),
    (-0.4253, 0.1382),
    (-0.9511, -0.3090),
    (-0.2629, -0.3618),
)
GLYPHS = {  # five columns by seven rows
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "B": "11110 10001 10001 11110 10001 10001 11110",
    "C": "01111 10000 10000 10000 10000 10000 01111",
    "D": "11110 10001 10001 10001 10001 10001 11110",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "F": "11111 10000 10000 11110 10000 10000 10000",
}


def _inside_star(x: Mask, y: Mask) -> NDArray[np.bool_]:
    """Even-odd rule over the star's edges."""
    inside = np.zeros(x.shape, dtype=bool)
    for (x1, y1), (x2, y2) in zip(TIPS, TIPS[1:] + TIPS[:1], strict=True):
        if y1 != y2:
            crosses = ((y1 > y) != (y2 > y)) & (x < (x2 - x1) * (y - y1) / (y2 - y1) + x1)
            inside ^= crosses
    return inside


@cache
def sprite(shape: str, size: int) -> Mask:
    """Rasterise a shape into a square of ``size`` pixels, with soft edges."""
    steps = (np.arange(size * FINE) + 0.5) * (2.0 / (size * FINE)) - 1.0
    x, y = np.meshgrid(steps, steps)
    radius = np.sqrt(x * x + y * y)
    inside = INSIDE[shape](x, y, radius)
    return inside.reshape(size, FINE, size, FINE).mean(axis=(1, 3))


@cache
def glyph(letter: str) -> Mask:
    """A letter of 10 by 14 pixels."""
    rows = [[float(bit) for bit in row] for row in GLYPHS[letter].split()]
    return np.kron(np.array(rows), np.ones((2, 2)))


def stamp(image: Image, mask: Mask, corner: tuple[int, int], color: tuple[int, ...]) -> None:
    """Blend a colour into the image where the mask says; corner is (x, y)."""
    x, y = corner
    part = image[y : y + mask.shape[0], x : x + mask.shape[1]]
    alpha = mask[: part.shape[0], : part.shape[1], None]
    part += alpha * (np.array(color, dtype=np.float64) - part)


def segment(
    size: int, start: tuple[float, float], end: tuple[float, float], *, width: float
) -> Mask:
    """Mask of a straight stroke over a whole image of ``size`` pixels."""
    y, x = np.mgrid[0:size, 0:size] + 0.5
    (x1, y1), (x2, y2) = start, end
    length = (x2 - x1) ** 2 + (y2 - y1) ** 2
    along = np.clip(((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / max(length, 1e-9), 0.0, 1.0)
    gap = np.sqrt((x - x1 - along * (x2 - x1)) ** 2 + (y - y1 - along * (y2 - y1)) ** 2)
    return np.clip(width / 2 + 0.5 - gap, 0.0, 1.0)


def arrow(size: int, start: tuple[float, float], end: tuple[float, float]) -> Mask:
    """Mask of an arrow: a stroke with a triangular head at its end."""
    (x1, y1), (x2, y2) = start, end
    length = np.sqrt((x2 - x1) ** 2 + (y2 - y1) ** 2)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    shaft = segment(size, start, (x2 - 3 * ux, y2 - 3 * uy), width=1.6)
    y, x = np.mgrid[0:size, 0:size] + 0.5
    back = (x2 - x) * ux + (y2 - y) * uy  # how far behind the tip
    side = np.abs((x2 - x) * uy - (y2 - y) * ux)
    head = np.clip(0.65 * back - side + 0.5, 0.0, 1.0) * ((back > -0.5) & (back <= 6.0))
    return np.maximum(shaft, head)


INSIDE = {
    "circle": lambda x, y, r: r <= 1.0,
    "square": lambda x, y, r: (np.abs(x) <= 0.92) & (np.abs(y) <= 0.92),
    "triangle": lambda x, y, r: (np.abs(x) <= (y + 1.0) / 2) & (y <= 0.95),
    "diamond": lambda x, y, r: np.abs(x) * 1.45 + np.abs(y) <= 1.0,
    "cross": lambda x, y, r: (np.abs(x) <= 0.3) | (np.abs(y) <= 0.3),
    "ring": lambda x, y, r: (r <= 1.0) & (r >= 0.6),
    "star": lambda x, y, r: _inside_star(x, y),
    "moon": lambda x, y, r: (r <= 1.0) & ((x - 0.6) ** 2 + y * y >= 0.72),
}
