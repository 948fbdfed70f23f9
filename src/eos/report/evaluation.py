"""The tables of `eos eval`: for a terminal, and as Markdown for documents."""

from collections.abc import Callable, Collection, Sequence

from rich.text import Text

from eos.evaluation.estimates import Score, write_accuracy, write_difference, write_interval
from eos.evaluation.overall import OverallRow
from eos.evaluation.results import WRITTEN, ResultRow, Results
from eos.report.comparison import family_title, members_of
from eos.report.layout import Cell, Grid, show
from eos.report.reproduction import setting

COSTS = ("final", "mean", "FLOPs")
DIFFERENCE, INTERVAL = "difference to full", "95%"


def caption(results: Results) -> list[str]:
    """Describe the evaluation and the columns of its tables."""
    n = setting(results)["questions a family"]
    cost = results.rows[0].cost
    shown = "grey images instead of the true ones" if results.blank else "images as they are"
    return [
        f"{results.backbone}, {results.num_layers} layers, {results.visual_tokens} visual tokens; "
        f"task {results.task}, split {results.split}, seed {results.seed}, n = {n} questions a "
        f"family, {shown}. {results.note}",
        "Accuracy in percent ± standard error; differences in points, question by question on the "
        "same questions, ± standard error of the pairs. final, mean: visual tokens left, and "
        f"entering a layer. FLOPs: over the full model's, prefill with {cost.text_tokens} text "
        "tokens.",
    ]


def show_evaluation(results: Results, *, width: int | None = None) -> None:
    """Print a table for each group of families, one of averages and costs, and the caption."""
    groups = [_group_grid(results, group) for group in _groups(results)]
    show([*groups, summary_grid(results), *caption(results)], width=width)


def markdown(results: Results) -> str:
    """Write both tables as Markdown: accuracies with costs, then differences."""
    names, groups = list(results.families), _groups(results)
    averages = [*groups, "average"]
    header = ["run", *COSTS, *names, *averages]
    lines = [_line(header), _line(["---"] + ["---:"] * (len(header) - 1))]
    chances = [_chance(results, own) for own in _columns(results)]
    lines.append(_line(["*chance*", "", "", "", *chances]))
    lines += [
        _line([f"`{row.name}`", *costs(row), *_each(row, names, groups, write_accuracy)])
        for row in results.rows
    ]
    if len(results.rows) > 1:
        header = ["run", "final", *names, *averages, INTERVAL]
        lines += ["", _line(header), _line(["---"] + ["---:"] * (len(header) - 1))]
    for row in results.rows[1:]:
        cells = [*_each(row, names, groups, write_difference), write_interval(row.average)]
        lines.append(_line([f"`{row.name}`", str(row.cost.final_tokens), *cells]))
    titles = {g: [family_title(results, x) for x in members_of(results, g)] for g in groups}
    members = "; ".join(f"{group}: {', '.join(own)}" for group, own in titles.items())
    return "\n".join([*lines, "", *caption(results), "", f"Families: {members}.", ""])


def _group_grid(results: Results, group: str) -> Grid:
    names = members_of(results, group)
    chances = [_chance(results, own) for own in [*([name] for name in names), names]]
    rows: list[list[Cell]] = [[Text(cell, style="dim") for cell in ["chance", *chances]]]
    for row in results.rows:
        scores = [*(row.families[name] for name in names), row.groups[group]]
        rows.append([row.name, *map(_stacked, scores)])
    title = f"{group} families"
    return Grid(["run", *names, group], rows, title=title, lines_after=(0, 1))


def summary_grid(results: Results, *, lines_after: Collection[int] = (0,)) -> Grid:
    """Lay out averages and costs, a line after the rows of these places."""
    groups = _groups(results)
    rows = [
        [
            row.name,
            *costs(row),
            *(write_accuracy(row.groups[group]) for group in groups),
            *(write(row.average) for write in WRITTEN),
        ]
        for row in results.rows
    ]
    columns = ["run", *COSTS, *groups, "average", DIFFERENCE, INTERVAL]
    return Grid(columns, rows, title="averages over families, and costs", lines_after=lines_after)


def _groups(results: Results) -> list[str]:
    return list(dict.fromkeys(family.group for family in results.families.values()))


def _columns(results: Results) -> list[list[str]]:
    """The families that each column averages: every one by itself, the groups, then all."""
    names = list(results.families)
    return [*([name] for name in names), *(members_of(results, g) for g in _groups(results)), names]


def _chance(results: Results, names: Sequence[str]) -> str:
    """Mean chance level of families; a dash if one is unknown."""
    known = [x for name in names if (x := results.families[name].chance) is not None]
    return f"{sum(known) / len(known):.1f}" if len(known) == len(names) else "-"


def _each(
    row: ResultRow, names: Sequence[str], groups: Sequence[str], write: Callable[[Score], str]
) -> list[str]:
    scores = [row.families[name] for name in names] + [row.groups[group] for group in groups]
    return [write(score) for score in [*scores, row.average]]


def costs(row: ResultRow | OverallRow) -> list[str]:
    """Write the cells of the columns `COSTS`."""
    cost = row.cost
    return [str(cost.final_tokens), f"{cost.mean_tokens:.1f}", f"{cost.flops_ratio:.3f}"]


def _stacked(score: Score) -> str:
    lines = [write_accuracy(score), *([write_difference(score)] if score.difference else [])]
    return "\n".join(lines).replace(" ", "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
