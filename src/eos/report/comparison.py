"""Comparison: which rows stand in one block, which of them is best for certain, and in what words.

A cell is bold only where its row is ahead of the best row of every other method in its block with
a paired 95% interval that excludes zero. The full model, which reduces nothing, does not compete.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from eos.evaluation.estimates import Score, signed, write_accuracy
from eos.evaluation.results import ResultRow, Results
from eos.evaluation.study import FULL_ROW, Study, StudyRow, compare
from eos.report.reproduction import Reproduction, by_setting, describe_differences, join, setting
from eos.report.sheet import Block, SheetCell, plain

COST_HEADS = ("FLOPs", "mean tokens")
FEWEST = 10  # questions below which no difference counts as certain
BOLD_RULE = (
    "Bold: ahead of the best other method of the block, the paired 95% interval excludes zero. "
    "FLOPs are relative to the full model's, mean tokens those entering a layer; a comparison is "
    "fair at equal or lower FLOPs."
)


def budget_of(row: ResultRow) -> int:
    """Give the budget that a row was made for: what its study says, else its final tokens."""
    named = row.factors.get("budget") if isinstance(row, StudyRow) else None
    return row.cost.final_tokens if named is None else int(named)


def budgets_of(rows: Sequence[StudyRow]) -> list[int]:
    """List the budgets of reduced rows, largest first."""
    return sorted({budget_of(row) for row in rows if row.method != FULL_ROW}, reverse=True)


def reduced_at(study: Study, budget: int) -> list[StudyRow]:
    """List the rows of a budget without the full model's."""
    return [row for row in study.rows if row.method != FULL_ROW and budget_of(row) == budget]


def at_budget(study: Study, budget: int) -> list[StudyRow]:
    """List the rows of a budget, best first, after the full model's."""
    own = sorted(reduced_at(study, budget), key=lambda row: (-row.average.accuracy, row.name))
    return [study.row(FULL_ROW), *own]


def leader(rows: Sequence[StudyRow], families: Sequence[str]) -> str | None:
    """Name the row that is ahead of all other methods for certain; None if none is."""
    competing = [row for row in rows if row.method != FULL_ROW]
    ranked = sorted(competing, key=lambda row: -_mean(row, families))
    others = [row for row in ranked if row.method != ranked[0].method]
    if not others or not enough(ranked[0], families):
        return None
    return ranked[0].name if compare(ranked[0], others[0], families).low > 0 else None


def enough(row: StudyRow, families: Sequence[str]) -> bool:
    """Whether there are questions enough for an interval: few that score alike have none."""
    return sum(row.families[name].n for name in families) >= FEWEST


def _mean(row: StudyRow, families: Sequence[str]) -> float:
    return fmean(row.families[name].accuracy for name in families)


def columns_of(study: Study) -> dict[str, list[str]]:
    """Name the columns of a table with what each averages: families, groups, then all."""
    families = study.families
    groups: dict[str, list[str]] = {}
    for name, info in families.items():
        groups.setdefault(info.group, []).append(name)
    several = groups if len(groups) > 1 else {}
    single = {name: [name] for members in groups.values() for name in members}
    return {**single, **several, "average": list(families)}


def score_of(row: ResultRow, column: str, families: Sequence[str]) -> Score:
    """Find a row's score in a column of `columns_of`."""
    if len(families) == 1:
        return row.families[families[0]]
    return row.average if column == "average" else row.groups[column]


def cost_cells(row: ResultRow) -> list[SheetCell]:
    """Write what a row costs: FLOPs relative to the full model, mean tokens entering a layer."""
    return [plain(f"{row.cost.flops_ratio:.3f}"), plain(f"{row.cost.mean_tokens:.1f}")]


def score_cells(study: Study, columns: dict[str, list[str]]) -> dict[str, list[SheetCell]]:
    """Write the accuracies of all rows by name, bold where a row leads those of its budget."""
    found = {}
    for budget in budgets_of(study.rows):
        rows = at_budget(study, budget)
        leaders = {column: leader(rows, families) for column, families in columns.items()}
        for row in rows:
            found[row.name] = [
                SheetCell(write_accuracy(score_of(row, name, own)), bold=leaders[name] == row.name)
                for name, own in columns.items()
            ]
    return found


def difference_cell(own: StudyRow, other: StudyRow, families: Sequence[str]) -> SheetCell:
    """Write a paired difference with its standard error, bold if it is certain."""
    found = compare(own, other, families)
    certain = enough(own, families) and (found.low > 0 or found.high < 0)
    return SheetCell(f"{signed(found.points)} ± {found.stderr:.1f}", bold=certain)


def method_name(row: ResultRow) -> str:
    """Give a row's name without its budget."""
    return row.name.partition("@")[0]


def standing_for(study: Study, benchmark: str) -> str | None:
    """Find the family that is a benchmark, or imitates it; None if there is none."""
    for name, info in study.families.items():
        known = [name, *info.imitates.split(",")]
        if benchmark.lower() in [other.strip().lower() for other in known]:
            return name
    return None


def shown_families(study: Study, benchmarks: Sequence[str]) -> list[str]:
    """List the families that stand for benchmarks; the first ones if none does."""
    found = [name for b in benchmarks if (name := standing_for(study, b)) is not None]
    return list(dict.fromkeys(found)) or list(study.families)[: len(benchmarks)]


def members_of(study: Study | Results, group: str) -> list[str]:
    """List the families of a group."""
    return [name for name, info in study.families.items() if info.group == group]


def family_title(study: Study | Results, name: str) -> str:
    """Write a family with what it imitates."""
    imitates = study.families[name].imitates
    return f"{name} (after {imitates})" if imitates else name


def blocks_by_setting(
    studies: Sequence[Study], make: Callable[[Study], Sequence[Block]]
) -> list[Block]:
    """Make the blocks of each setting; with several, their headings name the difference."""
    groups = by_setting(studies)
    names = describe_differences(studies) if len(groups) > 1 else [""]
    blocks = []
    for group, name in zip(groups, names, strict=True):
        for block in make(join(group)):
            heading = "; ".join(part for part in (block.heading, name) if part)
            blocks.append(Block(heading, block.rows))
    return blocks


def alike(studies: Sequence[Study], columns: Callable[[Study], Iterable[str]]) -> list[list[Study]]:
    """Group studies whose tables have the same columns; others get a table of their own."""
    groups: dict[tuple[str, ...], list[Study]] = {}
    for study in studies:
        groups.setdefault(tuple(columns(study)), []).append(study)
    return list(groups.values())


def answering(reproduction: Reproduction, label: str) -> list[Study]:
    """List the studies that answer a label of the paper."""
    return [study for study in reproduction.studies if label in study.labels]


def notes_of(studies: Sequence[Study]) -> list[str]:
    """Describe what was measured, once for each setting."""
    notes = []
    for group in by_setting(studies):
        own = setting(group[0])
        note = group[0].note
        notes.append(
            f"{own['backbone']}, {own['layers']} layers, {own['visual tokens']} visual tokens; "
            f"task {own['task']}, split {own['split']}, seed {own['seed']}, n = "
            f"{own['questions a family']} questions a family; eos {own['eos']}. "
            f"Accuracy in percent ± standard error.{f' {note}' if note else ''}"
        )
    return list(dict.fromkeys(notes))
