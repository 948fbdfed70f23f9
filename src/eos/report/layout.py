"""Layout: tables that fit a terminal of any width, with no number, name or word cut.

A table that is too wide is turned, rows becoming columns, if that fits; otherwise its columns are
spread over several tables, each with the columns that name the rows; in a terminal narrower than
that, every row becomes a list of its values.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell: TypeAlias = str | Text
BORDER, EDGE = 3, 1  # columns that a table's lines and margins take for each column, and once


@dataclass(frozen=True)
class Grid:
    """A table before it is laid out.

    Attributes:
        columns: their heads, which may break between words.
        rows: their cells; a line break in a cell is kept.
        title: printed above it.
        keys: how many of the first columns name a row; each part of a table has them.
        left: columns aligned at the left besides the keys.
        lines_after: places of rows that a line follows.
        whole_heads: whether heads are names, which do not break.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    keys: int = 1
    left: Collection[str] = ()
    lines_after: Collection[int] = ()
    whole_heads: bool = False

    def column(self, place: int) -> list[Cell]:
        """Give the cells of a column."""
        return [row[place] for row in self.rows]


def show(parts: Iterable[Grid | str], *, width: int | None = None) -> None:
    """Print tables and paragraphs within a width; None: that of the terminal."""
    console = Console(width=width)
    for part in parts:
        if isinstance(part, Grid):
            show_grid(console, part)
        else:
            console.print(part, highlight=False, markup=False)


def show_grid(console: Console, grid: Grid) -> None:
    """Print a table within the width of a console."""
    parts = spread(grid, console.width)
    if len(parts) != 1 and grid.keys == 1:
        turned = transposed(grid)
        pieces = spread(turned, console.width)
        grid, parts = (turned, pieces) if len(pieces) == 1 else (grid, parts)
    for number, part in enumerate(parts, start=1):
        which = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
        _print_title(console, grid.title and f"{grid.title}{which}")
        console.print(_table(grid, part, console.width))
    if not parts:
        _print_title(console, grid.title)
        for line in records(grid):
            console.print(line, highlight=False, overflow="fold")


def spread(grid: Grid, width: int) -> list[list[int]]:
    """Divide columns over as few tables as fit, about equally wide; none if one does not fit.

    Each part lists the places of its columns, the keys first.
    """
    keys = list(range(grid.keys))
    needs = {place: _narrowest(grid, place) + BORDER for place in range(len(grid.columns))}
    available = width - EDGE - sum(needs[place] for place in keys)
    others = {place: need for place, need in needs.items() if place >= grid.keys}
    widest = max(others.values(), default=0)
    if widest > available:
        return []
    fewest = len(_filled(others, available))
    enough = (_filled(others, limit) for limit in range(widest, available + 1))
    return [[*keys, *part] for part in next(x for x in enough if len(x) == fewest)]


def transposed(grid: Grid) -> Grid:
    """Turn a table: a column for each row; the first column holds what the heads were."""
    names = [_text(cell).plain for cell in grid.column(0)]
    rows = [[head, *grid.column(place)] for place, head in enumerate(grid.columns) if place]
    return Grid(["", *names], rows, title=grid.title, whole_heads=True)


def records(grid: Grid) -> Iterator[Text]:
    """Write every row as lines: what names it, then each value beside its column's head."""
    indent = max(cell_len(head) for head in grid.columns[grid.keys :])
    for row in grid.rows:
        yield Text(", ").join(_text(cell) for cell in row[: grid.keys])
        for head, cell in zip(grid.columns[grid.keys :], row[grid.keys :], strict=True):
            for line in _text(cell).split("\n"):
                yield Text(f"  {head:<{indent}}  ").append_text(line)


def _filled(needs: dict[int, int], available: int) -> list[list[int]]:
    """Fill tables with columns in order, each up to ``available`` characters wide."""
    parts: list[list[int]] = [[]]
    left = available
    for place, need in needs.items():
        if need > left and parts[-1]:
            parts.append([])
            left = available
        parts[-1].append(place)
        left -= need
    return parts


def _table(grid: Grid, part: Sequence[int], width: int) -> Table:
    widths = {place: max(_narrowest(grid, place), cell_len(grid.columns[place])) for place in part}
    if sum(widths.values()) + BORDER * len(part) + EDGE > width:
        widths = {place: _narrowest(grid, place) for place in part}
    table = Table()
    for place in part:
        head = grid.columns[place]
        aligned = "left" if place < grid.keys or head in grid.left else "right"
        table.add_column(Text(head), justify=aligned, width=widths[place])  # type: ignore[arg-type]
    for number, row in enumerate(grid.rows):
        cells = [_text(row[place]) for place in part]
        table.add_row(*cells, end_section=number in grid.lines_after)
    return table


def _narrowest(grid: Grid, place: int) -> int:
    """Find the width at which no cell of a column breaks, nor a word of its head."""
    head = grid.columns[place]
    words = [head] if grid.whole_heads else head.split() or [""]
    lines = [line for cell in grid.column(place) for line in _text(cell).plain.split("\n")]
    return max(map(cell_len, [*words, *lines]))


def _text(cell: Cell) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


def _print_title(console: Console, title: str) -> None:
    if title:
        console.print(Text(title, style="italic"))
