"""Naming: write the names of lines at their ends; names that would overlap share a column."""

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from eos.report.drawing import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 5.0  # points from the end of a line to its name
COLUMN = 10.0  # points from the last end to a column of names
FARTHEST = 90.0  # points that a column moves to be clear of other lines
LINE = 1.2  # heights of a name from one to the next


class End(NamedTuple):
    """The last point of a line, in units of the data, its name and colour."""

    x: float
    y: float
    text: str
    colour: str


class Box(NamedTuple):
    """Where names stand, in points: a column of them, or one."""

    left: float
    right: float
    low: float
    high: float
    heights: tuple[float, ...]

    def meets(self, other: "Box") -> bool:
        """Whether two boxes overlap."""
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.high <= other.low or other.high <= self.low)

    def holds(self, place: tuple[float, float]) -> bool:
        """Whether a point lies inside."""
        return self.left < place[0] < self.right and self.low < place[1] < self.high


def name_ends(
    figure: "Figure",
    axes: "Axes",
    ends: Sequence[End],
    *,
    points: Sequence[tuple[float, float]] = (),
    size: float = 7,
) -> None:
    """Write each name to the right of its line's end, clear of the points of all lines."""
    figure.draw_without_rendering()  # places the axes, which names are measured in
    scale = 72 / figure.dpi  # points a pixel

    def place(x: float, y: float) -> tuple[float, float]:
        found = axes.transData.transform((x, y)) * scale
        return float(found[0]), float(found[1])

    places = [place(end.x, end.y) for end in ends]
    texts = [axes.annotate(end.text, (end.x, end.y), fontsize=size) for end in ends]
    widths = [text.get_window_extent().width * scale for text in texts]
    for text in texts:
        text.remove()
    taken = [place(*point) for point in points]
    arrow = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 3}
    for group, box in columns(places, widths, height=LINE * size, taken=taken):
        for i, height in zip(group, box.heights, strict=True):
            axes.annotate(
                ends[i].text,
                (ends[i].x, ends[i].y),
                xytext=(box.left - places[i][0], height - places[i][1]),
                textcoords="offset points",
                fontsize=size,
                color=ends[i].colour,
                va="center",
                arrowprops=arrow if box.left > places[i][0] + GAP + 1 else None,
            ).set_in_layout(False)


def columns(
    places: Sequence[tuple[float, float]],
    widths: Sequence[float],
    *,
    height: float,
    taken: Sequence[tuple[float, float]] = (),
) -> list[tuple[list[int], Box]]:
    """Group names that would overlap, and place every group as a column.

    >>> columns([(0, 0), (0, 1), (90, 0)], [40, 40, 40], height=8)[1][0]
    [0, 1]
    """
    groups = [[i] for i in range(len(places))]
    while True:
        boxes = [_box(group, places, widths, height=height, taken=taken) for group in groups]
        pairs = combinations(range(len(groups)), 2)
        meeting = next(((a, b) for a, b in pairs if boxes[a].meets(boxes[b])), None)
        if meeting is None:
            return list(zip(groups, boxes, strict=True))
        first, second = meeting
        joined = sorted(groups[first] + groups[second], key=lambda i: (places[i][1], i))
        groups = [group for i, group in enumerate(groups) if i not in meeting] + [joined]


def _box(
    group: Sequence[int],
    places: Sequence[tuple[float, float]],
    widths: Sequence[float],
    *,
    height: float,
    taken: Sequence[tuple[float, float]],
) -> Box:
    """Place names above each other, in the order of their ends, around the middle of these."""
    middle = sum(places[i][1] for i in group) / len(group)
    lowest = middle - height * (len(group) - 1) / 2
    heights = tuple(lowest + height * rank for rank in range(len(group)))
    first = left = max(places[i][0] for i in group) + (COLUMN if len(group) > 1 else GAP)
    while True:
        right = left + max(widths[i] for i in group)
        box = Box(left, right, heights[0] - height / 2, heights[-1] + height / 2, heights)
        hit = [place[0] for place in taken if box.holds(place)]
        if not hit:
            return box
        if max(hit) > first + FARTHEST:  # rather over a point than that far away
            taken, left = (), first
        else:
            left = max(hit) + COLUMN
