"""Build: every table and figure that some folders allow, an index, a summary and the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eos.errors import ConfigError
from eos.evaluation.results import Results
from eos.report.catalogue import FIGURES, TABLES, FigureEntry
from eos.report.comparison import alike, answering, columns_of, notes_of
from eos.report.drawing import check_matplotlib, write_figure
from eos.report.page import write_page
from eos.report.reproduction import Reproduction, load
from eos.report.sheet import Sheet, file_name, latex, markdown
from eos.report.tables.studies import any_study, plain_results
from eos.report.verdicts import as_markdown, verdicts
from eos.runs.files import check_folder, write_atomically
from eos.tables import markdown_table

INTRODUCTION = """\
# Results

Written by `eos report` from result files alone. Accuracies are in percent with their standard
errors; a difference is of the same questions, with its 95% interval. A budget is the visual tokens
that are left after the last reducing layer."""


@dataclass(frozen=True)
class Made:
    """A table or figure: its files, or why it is missing."""

    label: str
    title: str
    files: tuple[Path, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Report:
    """What `build` made.

    Attributes:
        out: the folder.
        tables: in the order of the index.
        figures: in the order of the index.
        other: further files: the index, the page.
    """

    out: Path
    tables: tuple[Made, ...]
    figures: tuple[Made, ...]
    other: tuple[Path, ...]

    @property
    def files(self) -> list[Path]:
        """All files that were written."""
        made = [path for each in (*self.tables, *self.figures) for path in each.files]
        return [*made, *self.other]

    @property
    def missing(self) -> list[Made]:
        """What could not be made, and why."""
        return [made for made in (*self.tables, *self.figures) if made.missing]


def build(folders: Sequence[str | Path], out: str | Path) -> Report:
    """Read results, and write all tables, figures, the index and the page into a folder.

    Args:
        folders: of `eos reproduce` or with results and plans, or single files.
        out: gets ``tables/``, ``figures/``, ``index.md``, ``results.md`` and ``page.html``.
    """
    out = Path(out)
    check_folder(out)
    reproduction = load(folders)
    tables = tuple(_tables(reproduction, out / "tables"))
    figures = tuple(_figures(reproduction, out / "figures"))
    page = [write_page(reproduction, out / "page.html")] if reproduction.studies else []
    index, summary = out / "index.md", out / "results.md"
    report = Report(out, tables, figures, (index, summary, *page))
    write_atomically(index, index_page(report, notes_of(reproduction.studies)))
    written = [path for made in tables for path in made.files if path.suffix == ".md"]
    write_atomically(summary, summary_page(reproduction, written))
    return report


def _tables(reproduction: Reproduction, folder: Path) -> Iterator[Made]:
    for label, entry in TABLES.items():
        try:
            sheets = entry.make(reproduction, label)
        except ConfigError as refusal:
            yield Made(label, entry.title, missing=str(refusal))
            continue
        missing = "" if sheets else f"needs {entry.needs}"
        yield Made(label, entry.title, tuple(_write(sheets, folder)), missing)
    for sheet in _more_tables(reproduction):
        yield Made(sheet.label, sheet.title, tuple(_write([sheet], folder)))


def _more_tables(reproduction: Reproduction) -> Iterator[Sheet]:
    """Write studies that no table of the paper answers, and results of `eos eval`."""
    tabled = [study for label in TABLES for study in answering(reproduction, label)]
    others = [study for study in reproduction.studies if study not in tabled]
    for name in dict.fromkeys(study.name for study in others):
        own = [study for study in others if study.name == name]
        for place, group in enumerate(alike(own, columns_of), start=1):
            yield any_study(group, f"study_{name}" if place == 1 else f"study_{name}-{place}")
    for place, results in enumerate(reproduction.all(Results), start=1):
        yield plain_results(results, "results" if place == 1 else f"results-{place}")


def _write(sheets: Sequence[Sheet], folder: Path) -> Iterator[Path]:
    for place, sheet in enumerate(sheets, start=1):
        name = sheet.name if place == 1 else f"{sheet.name}-{place}"
        for suffix, text in {"md": markdown(sheet), "tex": latex(sheet)}.items():
            write_atomically(folder / f"{name}.{suffix}", text)
            yield folder / f"{name}.{suffix}"


def _figures(reproduction: Reproduction, folder: Path) -> Iterator[Made]:
    for label, entry in FIGURES.items():
        try:
            yield _figure(reproduction, label, entry, folder=folder)
        except ConfigError as refusal:
            yield Made(label, entry.title, missing=str(refusal))


def _figure(reproduction: Reproduction, label: str, entry: FigureEntry, *, folder: Path) -> Made:
    check_matplotlib()
    data = entry.make(reproduction)
    if data is None:
        return Made(label, entry.title, missing=f"needs {entry.needs}")
    name, on_both = file_name(label), entry.on_both
    files = write_figure(data, entry.draw, folder=folder, name=name, on_both=on_both)
    return Made(label, entry.title, tuple(files))


def index_page(report: Report, notes: Sequence[str] = ()) -> str:
    """List what was made, what is missing, and what was measured, as Markdown."""
    lines = ["# Tables and figures", ""]
    for title, made in {"Tables": report.tables, "Figures": report.figures}.items():
        rows = []
        for each in made:
            paths = [path.relative_to(report.out).as_posix() for path in each.files]
            links = [f"[{path.rpartition('.')[2]}]({path})" for path in paths]
            files = ", ".join(links) or f"*not made*: {each.missing}"
            rows.append([f"`{each.label}`", each.title, files])
        table = markdown_table(["label", "what", "files"], rows, align="lll")
        lines += [f"## {title}", "", table, ""]
    missing = ", ".join(f"`{each.label}`" for each in report.missing) or "nothing"
    lines += [f"Missing: {missing}.", ""]
    for note in notes:
        lines += [note, ""]
    return "\n".join(lines)


def summary_page(reproduction: Reproduction, tables: Sequence[Path]) -> str:
    """Write the verdicts on the paper's claims and every table, from its file, as one page."""
    parts = [INTRODUCTION, *notes_of(reproduction.studies)]
    judged = verdicts(reproduction)
    if judged:
        parts += ["## The paper's claims", as_markdown(judged).rstrip()]
    for path in tables:
        parts.append("#" + path.read_text(encoding="utf-8").rstrip())  # one level further down
    commands = dict.fromkeys(line for study in reproduction.studies for line in study.commands)
    if commands:
        parts += ["## Commands", "\n".join(["```bash", *commands, "```"])]
    return "\n\n".join(parts) + "\n"
