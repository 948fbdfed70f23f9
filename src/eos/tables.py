"""Tables as plain text and as Markdown: cells in, one string out. No terminal, no colours."""

from collections.abc import Sequence


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Write columns two spaces apart, the first ``left`` aligned at the left, others at the right.

    >>> print(text_table(["run", "final"], [["full", "144"], ["fastv@64", "64"]]))
    run       final
    full        144
    fastv@64     64
    """
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    written = [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in written)


def markdown_table(
    head: Sequence[str], rows: Sequence[Sequence[object]], *, align: str = ""
) -> str:
    """Write a Markdown table; ``align`` has l or r for each column.

    Without it the first column is aligned at the left, others at the right.

    >>> print(markdown_table(["run", "final"], [["full", "144"]]))
    | run | final |
    |---|---:|
    | full | 144 |
    """
    align = align or "l".ljust(len(head), "r")
    ruler = "".join("---|" if side == "l" else "---:|" for side in align)
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in [head, *rows]]
    return "\n".join([lines[0], f"|{ruler}", *lines[1:]])
