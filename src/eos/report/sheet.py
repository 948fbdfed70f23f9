"""Sheet: a table of the paper before it is written, and the two ways to write it.

Cells are plain text with the field's own signs (γ, ±, −); Markdown takes them as they are, LaTeX
gets commands for them, so that both have the same numbers.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from eos.tables import markdown_table


@dataclass(frozen=True)
class SheetCell:
    """A cell: its text, whether it is bold, and whether it is a name, set as code."""

    text: str
    bold: bool = False
    code: bool = False


@dataclass(frozen=True)
class Block:
    """Rows under one heading, which may be empty."""

    heading: str
    rows: Sequence[Sequence[SheetCell]]


@dataclass(frozen=True)
class Sheet:
    """A table.

    Attributes:
        label: of the paper, such as ``tab:reproduce``; of its own where the paper has none.
        title: one line.
        heads: of the columns.
        blocks: of rows.
        notes: sentences below it: what was measured and how.
        texts: heads of columns aligned at the left, as the first one is; numbers at the right.
        spans: heads above the heads, with the number of columns that each covers.
    """

    label: str
    title: str
    heads: Sequence[str]
    blocks: Sequence[Block]
    notes: Sequence[str] = ()
    texts: Collection[str] = ()
    spans: Sequence[tuple[str, int]] = ()

    @property
    def columns(self) -> str:
        """How each column is aligned: l or r."""
        aligned = ["l" if head in self.texts else "r" for head in self.heads]
        return "".join(["l", *aligned[1:]])

    @property
    def name(self) -> str:
        """The name of its files."""
        return file_name(self.label)


def file_name(label: str) -> str:
    """Make a label the name of a file.

    >>> file_name("tab:main_retainsweep")
    'main_retainsweep'
    """
    return label.partition(":")[2] or label


def plain(text: str) -> SheetCell:
    """Make a cell without marks."""
    return SheetCell(text)


def code(text: str) -> SheetCell:
    """Make a cell that holds a name."""
    return SheetCell(text, code=True)


def markdown(sheet: Sheet) -> str:
    """Write a table as Markdown: a heading, one table a block, the notes."""
    lines = [f"# {sheet.title}", ""]
    for block in sheet.blocks:
        rows = [[_markdown_cell(cell) for cell in row] for row in block.rows]
        heads = [_escape_markdown(head) for head in sheet.heads]
        heading = [f"**{_escape_markdown(block.heading)}**", ""] if block.heading else []
        lines += [*heading, markdown_table(heads, rows, align=sheet.columns), ""]
    for note in sheet.notes:
        lines += [_escape_markdown(note), ""]
    return "\n".join(lines)


def latex(sheet: Sheet) -> str:
    """Write a table as LaTeX: needs the packages booktabs and graphicx."""
    count = len(sheet.heads)
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{\textbf{{{escape(sheet.title)}.}} {escape(' '.join(sheet.notes))}}}",
        rf"\label{{{sheet.label}}}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{sheet.columns}@{{}}}}",
        r"\toprule",
        *_spanned(sheet.spans),
        _latex_row([escape(head) for head in sheet.heads]),
    ]
    for block in sheet.blocks:
        lines.append(r"\midrule")
        if block.heading:
            lines.append(
                rf"\multicolumn{{{count}}}{{@{{}}l}}{{\emph{{{escape(block.heading)}}}}} \\"
            )
            lines.append(r"\midrule")
        lines += [_latex_row([_latex_cell(cell) for cell in row]) for row in block.rows]
    lines += [r"\bottomrule", r"\end{tabular}%", "}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    r"""Write text for LaTeX.

    >>> escape("50% of γ_1 ± 0.1")
    '50\\% of $\\gamma$\\_1 $\\pm$ 0.1'
    """
    return "".join(_SIGNS.get(sign, sign) for sign in text)


def _spanned(spans: Sequence[tuple[str, int]]) -> list[str]:
    """Write the heads above the heads, with a rule under each that has a text."""
    cells, rules, first = [], [], 1
    for text, count in spans:
        cells.append(
            rf"\multicolumn{{{count}}}{{c}}{{{escape(text)}}}" if text else "&" * (count - 1)
        )
        if text:
            rules.append(rf"\cmidrule(lr){{{first}-{first + count - 1}}}")
        first += count
    return [_latex_row(cells), "".join(rules)] if cells else []


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: SheetCell) -> str:
    text = escape(cell.text)
    if cell.code:
        text = rf"\texttt{{{text}}}"
    return rf"\textbf{{{text}}}" if cell.bold else text


def _markdown_cell(cell: SheetCell) -> str:
    # inside code a backslash is itself; only the bar has to be escaped there, as tables need it
    text = (
        f"`{cell.text.replace('|', chr(92) + '|')}`" if cell.code else _escape_markdown(cell.text)
    )
    return f"**{text}**" if cell.bold else text


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>])", r"\\\1", text)


_SIGNS = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "γ": r"$\gamma$",
    "τ": r"$\tau$",
    "θ": r"$\theta$",
    "Θ": r"$\Theta$",
    "ρ": r"$\rho$",
    "ν": r"$\nu$",
    "λ": r"$\lambda$",
    "Ω": r"$\Omega$",
    "Σ": r"$\Sigma$",
    "Δ": r"$\Delta$",
    "±": r"$\pm$",
    "−": r"$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "→": r"$\to$",
    "∞": r"$\infty$",
    "²": r"$^2$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
}
