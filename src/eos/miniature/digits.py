"""Handwritten digits: 1,797 samples of the UCI set that scikit-learn ships, in one small picture.

The training split never shows a sample that validation or test shows.
"""

from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from eos.miniature.drawing import Mask

SIDE, SHEET_COLUMNS, LEVELS = 8, 64, 16
HELD_OUT = 4  # one sample in so many is kept for validation, one for test


@cache
def samples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """All digits ``[1797, 8, 8]`` between 0 and 1, and what they show.

    The picture holds the samples row by row; in each the pixel values 0..16 are stored times 15,
    and the last row of the picture, read pixel by pixel, holds the labels.
    """
    with resources.files("eos.miniature").joinpath("digits.png").open("rb") as file:
        sheet = np.asarray(Image.open(file))
    count = int(sheet[-1, -4:].astype(np.int64) @ (1000, 100, 10, 1))
    rows = -(-count // SHEET_COLUMNS)
    cells = sheet[: rows * SIDE].reshape(rows, SIDE, SHEET_COLUMNS, SIDE).swapaxes(1, 2)
    labels = sheet[rows * SIDE : -1].reshape(-1)[:count]
    return cells.reshape(-1, SIDE, SIDE)[:count] / (15.0 * LEVELS), labels.astype(np.int64)


@cache
def indices(split: str) -> NDArray[np.int64]:
    """Which samples a split may show."""
    places = np.arange(len(samples()[1]))
    part = np.minimum(places % (2 * HELD_OUT), 2)  # 0: test, 1: validation, 2: training
    return places[part == {"test": 0, "validation": 1, "train": 2}[split]]


@cache
def enlarged(index: int) -> Mask:
    """A sample at twice its size, interpolated between pixel middles."""
    small = np.pad(samples()[0][index], 1, mode="edge")
    rows = np.stack([0.25 * small[:-2] + 0.75 * small[1:-1], 0.75 * small[1:-1] + 0.25 * small[2:]])
    tall = rows.swapaxes(0, 1).reshape(2 * SIDE, SIDE + 2)
    columns = np.stack(
        [0.25 * tall[:, :-2] + 0.75 * tall[:, 1:-1], 0.75 * tall[:, 1:-1] + 0.25 * tall[:, 2:]],
        axis=-1,
    )
    return np.clip(columns.reshape(2 * SIDE, 2 * SIDE) * 1.25, 0.0, 1.0)


def handwritten(rng: np.random.Generator, split: str) -> tuple[str, Mask]:
    """Pick a digit evenly among the ten, then a sample of it from the split."""
    digit = int(rng.integers(0, 10))
    pool = of_digit(split, digit)
    return str(digit), enlarged(int(pool[rng.integers(0, len(pool))]))


@cache
def of_digit(split: str, digit: int) -> NDArray[np.int64]:
    """The samples of one digit in a split."""
    chosen = indices(split)
    return chosen[samples()[1][chosen] == digit]
