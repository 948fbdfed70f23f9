"""Tables of single studies: reproduction of prior methods, moved layers, and any other study."""

from collections.abc import Sequence
from dataclasses import replace

from eos.evaluation.estimates import write_accuracy, write_difference, write_interval
from eos.evaluation.results import WRITTEN, Results
from eos.evaluation.study import FULL_ROW, Study, StudyRow
from eos.report.comparison import (
    BOLD_RULE,
    COST_HEADS,
    alike,
    answering,
    blocks_by_setting,
    budget_of,
    cost_cells,
    difference_cell,
    family_title,
    members_of,
    notes_of,
    score_cells,
    shown_families,
)
from eos.report.figures.overview import TWIN
from eos.report.plans import GREEK, PlanView, StepView
from eos.report.reproduction import Reproduction
from eos.report.sheet import Block, Sheet, SheetCell, code, plain
from eos.report.tables.budgets import RIVAL

VERIFIED = ("POPE", "SQA", "MME", "GQA", "TextVQA")  # benchmarks of Table 3
PLACED = ("POPE",)  # of Table 9


def reproduced(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write authors' operators, the same as points of ours, and searched ones (Table 3)."""
    found = alike(answering(reproduction, label), lambda own: shown_families(own, VERIFIED))
    return [_reproduced(studies, label) for studies in found]


def _reproduced(studies: Sequence[Study], label: str) -> Sheet:
    shown = shown_families(studies[0], VERIFIED)
    heads = ["method", "search-space setting", *COST_HEADS, *shown, "average", "match"]
    notes = [
        "Match: a point of our operator against the authors' own (exact: every question is scored "
        f"the same), a searched plan against {RIVAL} of the same budget; difference of averages "
        "± standard error of the pairs, bold if the 95% interval excludes zero.",
        *notes_of(studies),
        BOLD_RULE,
    ]
    blocks = blocks_by_setting(studies, _reproduced_blocks)
    title = "Prior methods reproduced by the unified operator, and searched operators"
    texts = ("search-space setting", "match")
    return Sheet(label, title, heads, blocks, notes=notes, texts=texts)


def _reproduced_blocks(study: Study) -> list[Block]:
    columns = {name: [name] for name in shown_families(study, VERIFIED)}
    columns["average"] = list(study.families)
    parts: dict[str, list[StudyRow]] = {
        "Full model": [study.row(FULL_ROW)],
        "The authors' own operators": [],
        "Special cases of the unified operator": [],
        "Searched operators": [],
    }
    _, originals, special, searched = parts.values()
    for row in study.rows:
        if row.method != FULL_ROW:
            unsearched = originals if row.method.endswith(TWIN) else special
            (searched if row.searched else unsearched).append(row)
    scores = score_cells(study, columns)

    def cells(row: StudyRow) -> list[SheetCell]:
        first = [code(row.name), plain(_setting(row)), *cost_cells(row)]
        return [*first, *scores[row.name], _match(study, row)]

    return [Block(heading, [cells(row) for row in rows]) for heading, rows in parts.items() if rows]


def _setting(row: StudyRow) -> str:
    """Write the layers and what the operators do, all alike or layer by layer."""
    if row.plan is None:
        return "–"
    plan = PlanView(**row.plan)
    each = [_point(step) for step in plan.steps]
    what = each[0] if len(set(each)) == 1 else "; ".join(each)
    return f"R = {plan.layers}, {what}"


def _point(step: StepView) -> str:
    if step.omega is None:
        return f"own: {step.label}"
    omega = step.omega
    acting = ["gamma"] + (["tau"] if omega["gamma"] else []) + (["rho"] if omega["rho"] else [])
    return " ".join(f"{GREEK[name]} = {omega[name]:.2g}" for name in acting)


def _match(study: Study, row: StudyRow) -> SheetCell:
    """Compare a row with the one that it should match."""
    wanted = RIVAL if row.searched else f"{row.method}{TWIN}"
    others = [x for x in study.rows if x.method == wanted and budget_of(x) == budget_of(row)]
    if not others or row.method == FULL_ROW:
        return plain("–")
    if row.scores == others[0].scores:
        return plain("exact")
    found = difference_cell(row, others[0], list(study.families))
    return replace(found, text=f"{found.text} against {wanted}")


def placements(reproduction: Reproduction, label: str) -> list[Sheet]:
    """Write what moving or leaving out a reducing layer costs (Table 9)."""
    found = alike(answering(reproduction, label), lambda own: shown_families(own, PLACED))
    return [_placements(studies, label) for studies in found]


def _placements(studies: Sequence[Study], label: str) -> Sheet:
    shown = shown_families(studies[0], PLACED)[0]
    heads = ["layers", shown, "Δ", "average", "Δ average", *COST_HEADS, "note"]
    notes = [
        f"{family_title(studies[0], shown)}; Δ: difference to the searched placement, question by "
        "question, ± standard error of the pairs; bold: its 95% interval excludes zero.",
        *notes_of(studies),
    ]
    blocks = blocks_by_setting(studies, _placement_blocks)
    title = "Layer-placement perturbations"
    return Sheet(label, title, heads, blocks, notes=notes, texts=("note",))


def _placement_blocks(study: Study) -> list[Block]:
    family, every = shown_families(study, PLACED)[0], list(study.families)
    base = next((row for row in study.rows if row.searched), None)
    rows = []
    for row in study.rows:
        plan = PlanView(**row.plan) if row.plan else None
        moved = base if row is not base and plan else None
        deltas = [
            difference_cell(row, moved, own) if moved else plain("–") for own in ([family], every)
        ]
        scores = [plain(write_accuracy(score)) for score in (row.families[family], row.average)]
        known = [str(row.factors[x]) for x in ("perturbation", "flops") if x in row.factors]
        note = plain(", FLOPs ".join(known) or row.name)
        first = plain(plan.layers if plan else "full model")
        rows.append([first, scores[0], deltas[0], scores[1], deltas[1], *cost_cells(row), note])
    budgets = sorted({budget_of(row) for row in study.rows if row.plan})
    return [Block(f"{', '.join(map(str, budgets))} final tokens", rows)]


def any_study(study_group: Sequence[Study], label: str) -> Sheet:
    """Write a study that has no table of its own: its factors, costs and scores."""
    study = study_group[0]
    rows = [row for own in study_group for row in own.rows]
    factors = list(dict.fromkeys(key for row in rows for key in row.factors))
    groups = list(study.row(FULL_ROW).groups)
    heads = ["run", *factors, *COST_HEADS, *groups, "average", "difference to full", "95%"]

    def blocks(own: Study) -> list[Block]:
        columns = {group: members_of(own, group) for group in groups}
        columns["average"] = list(own.families)
        scores = score_cells(own, columns)
        return [Block("", [cells(row, scores[row.name]) for row in own.rows])]

    def cells(row: StudyRow, scores: Sequence[SheetCell]) -> list[SheetCell]:
        varied = [plain(_factor(row, key)) for key in factors]
        full = [plain(write(row.average)) for write in (write_difference, write_interval)]
        return [code(row.name), *varied, *cost_cells(row), *scores, *full]

    notes = [*notes_of(study_group), BOLD_RULE]
    return Sheet(label, study.title, heads, blocks_by_setting(study_group, blocks), notes=notes)


def _factor(row: StudyRow, key: str) -> str:
    value = row.factors.get(key, "")
    return value if isinstance(value, str) else f"{value:g}"


def plain_results(results: Results, label: str) -> Sheet:
    """Write the results of `eos eval`, which have no scores of single questions: none is bold."""
    averages = ("average", "difference to full", "95%")
    heads = ["run", "final tokens", *COST_HEADS, *results.families, *averages]
    rows = [
        [code(row.name), plain(str(row.cost.final_tokens)), *cost_cells(row)]
        + [plain(write_accuracy(row.families[name])) for name in results.families]
        + [plain(write(row.average)) for write in WRITTEN]
        for row in results.rows
    ]
    counts = ", ".join(f"{name} {info.n}" for name, info in results.families.items())
    notes = [
        f"{results.backbone} ({results.fingerprint}), {results.num_layers} layers, "
        f"{results.visual_tokens} visual tokens; task {results.task}, split {results.split}, seed "
        f"{results.seed}; n: {counts}. Accuracy in percent ± standard error. {results.note}"
    ]
    title = f"Results of {results.backbone} on {results.task}"
    return Sheet(label, title, heads, [Block("", rows)], notes=notes)
