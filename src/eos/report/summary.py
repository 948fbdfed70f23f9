"""Summary: the verdicts on the paper's claims and every table, on one Markdown page."""

from collections.abc import Sequence
from pathlib import Path

from eos.report.comparison import notes_of
from eos.report.reproduction import Reproduction
from eos.report.verdicts import as_markdown, verdicts

INTRODUCTION = """\
# Results

Written by `eos report` from result files alone. Accuracies are in percent with their standard
errors; a difference is of the same questions, with its 95% interval. A budget is the visual tokens
that are left after the last reducing layer."""


def summary_page(reproduction: Reproduction, tables: Sequence[Path]) -> str:
    """Write the page from the Markdown files of tables."""
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
