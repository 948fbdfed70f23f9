"""Tables over budgets: the main one, aggressive budgets with differences, one row a method."""

from collections.abc import Callable, Sequence

from eos.evaluation.estimates import write_accuracy
from eos.evaluation.study import FULL_ROW, Study, StudyRow
from eos.report.comparison import (
    BOLD_RULE,
    COST_HEADS,
    alike,
    answering,
    at_budget,
    blocks_by_setting,
    budget_of,
    budgets_of,
    columns_of,
    cost_cells,
    difference_cell,
    family_title,
    leader,
    method_name,
    notes_of,
    score_cells,
    score_of,
    shown_families,
)
from eos.report.reproduction import Reproduction, by_setting
from eos.report.sheet import Block, Sheet, SheetCell, code, plain

RIVAL = "sparsevlm-v2"  # what the paper takes margins over
ROBUSTNESS = ("POPE", "MME", "MMBench")  # benchmarks of Table 8 and Figure 7


def main_results(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write every method at every budget, family by family (Table 4)."""
    return [
        _by_columns(label, "Main results across retained-token budgets", group, _budget_blocks)
        for group in alike(answering(reproduction, label), columns_of)
    ]


def aggressive(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write the smallest budgets, with what the searched plan gains over SparseVLM v2 (Table 7)."""
    title = "Per-benchmark scores at aggressive retain budgets"
    return [
        _by_columns(label, title, group, _margin_blocks)
        for group in alike(answering(reproduction, label), columns_of)
    ]


def _by_columns(
    label: str, title: str, studies: Sequence[Study], make: Callable[[Study], list[Block]]
) -> Sheet:
    columns = columns_of(studies[0])
    groups = [info.group for info in studies[0].families.values()]
    spans = [("", 3), *((group, groups.count(group)) for group in dict.fromkeys(groups))]
    spans.append(("averages", len(columns) - len(groups)))
    heads, notes = ["method", *COST_HEADS, *columns], [*notes_of(studies), BOLD_RULE]
    return Sheet(label, title, heads, blocks_by_setting(studies, make), notes=notes, spans=spans)


def _budget_blocks(study: Study) -> list[Block]:
    scores, blocks = score_cells(study, columns_of(study)), []
    for budget in budgets_of(study.rows):
        rows = at_budget(study, budget)
        cells = [[code(method_name(row)), *cost_cells(row), *scores[row.name]] for row in rows]
        blocks.append(Block(f"{budget} final tokens", cells))
    return blocks


def _margin_blocks(study: Study) -> list[Block]:
    columns = columns_of(study)
    blocks = []
    for block, budget in zip(_budget_blocks(study), budgets_of(study.rows), strict=True):
        rows = at_budget(study, budget)
        rival = next((row for row in rows if row.method == RIVAL), None)
        margins = [
            [code(f"{method_name(row)} − {RIVAL}"), plain(""), plain("")]
            + [difference_cell(row, rival, families) for families in columns.values()]
            for row in rows
            if row.searched and rival is not None
        ]
        blocks.append(Block(block.heading, [*block.rows, *margins]))
    return blocks


def robustness(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write one row a method with its accuracy at every budget, by benchmark (Table 8)."""
    sheets = []
    for group in by_setting(answering(reproduction, label)):
        budgets = budgets_of([row for study in group for row in study.rows])
        heads = ["method", *(f"r = {budget}" for budget in budgets)]
        blocks, notes = blocks_by_setting(group, _robustness_blocks), [*notes_of(group), BOLD_RULE]
        sheets.append(Sheet(label, "Cross-budget robustness", heads, blocks, notes=notes))
    return sheets


def _robustness_blocks(study: Study) -> list[Block]:
    shown = shown_families(study, ROBUSTNESS)
    blocks = [_robustness_block(study, family_title(study, name), name, [name]) for name in shown]
    every = list(study.families)
    blocks.append(_robustness_block(study, "average over all families", "average", every))
    costs = [
        [code(method), *(_cost(rows.get(budget)) for budget in budgets_of(study.rows))]
        for method, rows in _by_method(study).items()
    ]
    heading = "FLOPs relative to the full model · mean tokens entering a layer"
    return [*blocks, Block(heading, costs)]


def _robustness_block(study: Study, heading: str, column: str, families: list[str]) -> Block:
    budgets = budgets_of(study.rows)
    best = {budget: leader(at_budget(study, budget), families) for budget in budgets}
    rows = []
    for method, own in _by_method(study).items():
        cells = [code(method)]
        for budget in budgets:
            row = own.get(budget)
            text = write_accuracy(score_of(row, column, families)) if row else "–"
            cells.append(SheetCell(text, bold=row is not None and best[budget] == row.name))
        rows.append(cells)
    return Block(heading, rows)


def _by_method(study: Study) -> dict[str, dict[int, StudyRow]]:
    """Arrange rows by name without budget, then by budget; the full model's at all of them."""
    found: dict[str, dict[int, StudyRow]] = {
        FULL_ROW: dict.fromkeys(budgets_of(study.rows), study.row(FULL_ROW))
    }
    for row in study.rows:
        if row.method != FULL_ROW:
            found.setdefault(method_name(row), {})[budget_of(row)] = row
    return found


def _cost(row: StudyRow | None) -> SheetCell:
    return plain("–" if row is None else " · ".join(cell.text for cell in cost_cells(row)))
