"""The tables of `eos fidelity`: for a terminal, and as Markdown for documents."""

from collections.abc import Iterator

from eos.evaluation.agreement import Agreement
from eos.evaluation.fidelity import Fidelity, Level
from eos.evaluation.slopes import STEP, Measured
from eos.report.layout import Grid, show
from eos.tables import markdown_table


def markdown(found: Fidelity) -> str:
    """Write a table of agreements, one of sizes, then one of layers for each keep fraction."""
    return "\n\n".join(x if isinstance(x, str) else _written(x) for x in parts(found)) + "\n"


def show_fidelity(found: Fidelity, *, width: int | None = None) -> None:
    """Print the same tables within a width."""
    unmarked = str.maketrans("", "", "*`")
    show((x.translate(unmarked) if isinstance(x, str) else x for x in parts(found)), width=width)


def parts(found: Fidelity) -> Iterator[str | Grid]:
    """Give paragraphs and tables in the order of the page."""
    yield (
        f"{found.backbone}: {found.visual_tokens} visual tokens, one reducer (`{found.score}`, "
        f"prune) at a time at layers {found.layers[0]} to {found.layers[-1]}, {found.samples} "
        f"questions. The derivative of the loss in g·c, against central differences of "
        f"±{STEP:.0%} of the kept tokens under the deployed forward pass."
    )
    yield _agreements(found)
    yield (
        "± of a correlation: its standard error, by drawing the questions anew (bootstrap); noise "
        "also lowers it. A layer is certain if its difference exceeds two standard errors."
    )
    if found.pooled:
        yield _sizes(found)
        yield (
            "A cell is a layer at a keep fraction. Surrogate over difference: the median over "
            "certain cells of the right sign, and the 16th to 84th percentile. Sums: over layers, "
            "surrogates over differences. Passes: forward passes at one site, a backward pass "
            "being two; a backward pass serves all sites of one Θ at once, a measured difference "
            f"one site. *measured* takes steps of ±{Measured().step:.0%} on the same questions."
        )
    for level in found.levels:
        yield _layers(found, level)


def _written(grid: Grid) -> str:
    """Write a table with its title above it; layers are numbers, aligned at the right."""
    align = "r" * len(grid.columns) if grid.columns[0] == "layer" else ""
    table = markdown_table(grid.columns, grid.rows, align=align)
    return f"{grid.title}\n\n{table}" if grid.title else table


def _agreements(found: Fidelity) -> Grid:
    rows = []
    for method in found.levels[0].methods:
        for level in found.levels:
            own = level.methods[method]
            sure = "–" if own.certain_signs is None else f"{own.certain_signs:.0%}"
            rank = f"{own.rank:.2f} ± {own.rank_stderr:.2f}"
            keep = f"{level.keep_frac:g} ({level.keep} ± {level.step})"
            rows.append([method, keep, rank, f"{own.signs:.0%}", f"{sure} of {level.certain}"])
    columns = ["selection, through", "keep", "rank correlation", "signs agree"]
    return Grid([*columns, "signs, certain layers"], rows, keys=2)


def _sizes(found: Fidelity) -> Grid:
    """Lay out what is pooled over layers and keep fractions."""
    fractions = [f"{level.keep_frac:g}" for level in found.levels]
    rows = []
    for method, own in found.pooled.items():
        ratio = "–"
        if own.ratio is not None:
            ratio = f"{own.ratio:.2f} ({own.ratio_low:.2f} to {own.ratio_high:.2f})"
        wrong = f"{'–' if own.wrong is None else f'{own.wrong:.0%}'} of {own.certain}"
        rank = f"{own.rank:.2f} ± {own.rank_stderr:.2f}"
        totals = [_total(level.methods[method]) for level in found.levels]
        rows.append([method, str(own.passes), rank, ratio, wrong, *totals])
    columns = ["selection, through", "passes", "rank correlation", "surrogate / difference"]
    columns += ["wrong sign", *(f"sums, {fraction}" for fraction in fractions)]
    return Grid(columns, rows, title="Sizes, all layers and keep fractions together:")


def _total(own: Agreement) -> str:
    return "–" if own.total is None else f"{own.total:.2f} ± {own.total_stderr:.2f}"


def _layers(found: Fidelity, level: Level) -> Grid:
    names = list(level.methods)
    rows = []
    for place, layer in enumerate(found.layers):
        values = [level.difference[place], *(level.methods[n].gradient[place] for n in names)]
        rows.append([str(layer), *(f"{x.mean:.3f} ± {x.stderr:.3f}" for x in values)])
    title = f"Keep {level.keep} ({level.keep_frac:g}), derivatives ± standard error:"
    return Grid(["layer", "difference", *names], rows, title=title)
