"""The tables of `eos fidelity`, as Markdown."""

from eos.evaluation.agreement import Agreement
from eos.evaluation.fidelity import Fidelity, Level
from eos.evaluation.slopes import STEP, Measured


def markdown(found: Fidelity) -> str:
    """Write a table of agreements, then one of layers for each keep fraction."""
    lines = [
        f"{found.backbone}: {found.visual_tokens} visual tokens, one reducer (`{found.score}`, "
        f"prune) at a time at layers {found.layers[0]} to {found.layers[-1]}, {found.samples} "
        f"questions. The derivative of the loss in g·c, against central differences of "
        f"±{STEP:.0%} of the kept tokens under the deployed forward pass.",
        "",
        "| selection, through | keep | rank correlation | signs agree | signs, certain layers |",
        "|---|---:|---:|---:|---:|",
    ]
    for method in found.levels[0].methods:
        for level in found.levels:
            own = level.methods[method]
            sure = "–" if own.certain_signs is None else f"{own.certain_signs:.0%}"
            lines.append(
                f"| {method} | {level.keep_frac:g} ({level.keep} ± {level.step}) | {own.rank:.2f} "
                f"± {own.rank_stderr:.2f} | {own.signs:.0%} | {sure} of {level.certain} |"
            )
    lines += [
        "",
        "± of a correlation: its standard error, by drawing the questions anew (bootstrap); noise "
        "also lowers it. A layer is certain if its difference exceeds two standard errors.",
        *_sizes(found),
    ]
    for level in found.levels:
        lines += ["", *_layers(found, level)]
    return "\n".join(lines) + "\n"


def _sizes(found: Fidelity) -> list[str]:
    """Write a table of what is pooled over layers and keep fractions."""
    if not found.pooled:
        return []
    fractions = [f"{level.keep_frac:g}" for level in found.levels]
    lines = [
        "",
        "Sizes, all layers and keep fractions together:",
        "",
        "| selection, through | passes | rank correlation | surrogate / difference | "
        f"wrong sign | {' | '.join(f'sums, {fraction}' for fraction in fractions)} |",
        f"|---|---:|---:|---:|---:|{'---:|' * len(fractions)}",
    ]
    for method, own in found.pooled.items():
        ratio = "–"
        if own.ratio is not None:
            ratio = f"{own.ratio:.2f} ({own.ratio_low:.2f} to {own.ratio_high:.2f})"
        wrong = "–" if own.wrong is None else f"{own.wrong:.0%}"
        cells = " | ".join(_total(level.methods[method]) for level in found.levels)
        lines.append(
            f"| {method} | {own.passes} | {own.rank:.2f} ± {own.rank_stderr:.2f} | {ratio} | "
            f"{wrong} of {own.certain} | {cells} |"
        )
    return [
        *lines,
        "",
        "A cell is a layer at a keep fraction. Surrogate over difference: the median over certain "
        "cells of the right sign, and the 16th to 84th percentile. Sums: over layers, surrogates "
        "over differences. Passes: forward passes at one site, a backward pass being two; a "
        "backward pass serves all sites of one Θ at once, a measured difference one site. "
        f"*measured* takes steps of ±{Measured().step:.0%} on the same questions.",
    ]


def _total(own: Agreement) -> str:
    return "–" if own.total is None else f"{own.total:.2f} ± {own.total_stderr:.2f}"


def _layers(found: Fidelity, level: Level) -> list[str]:
    names = list(level.methods)
    lines = [
        f"Keep {level.keep} ({level.keep_frac:g}), derivatives ± standard error:",
        "",
        f"| layer | difference | {' | '.join(names)} |",
        f"|---:|{'---:|' * (len(names) + 1)}",
    ]
    for place, layer in enumerate(found.layers):
        values = [level.difference[place], *(level.methods[n].gradient[place] for n in names)]
        cells = " | ".join(f"{x.mean:.3f} ± {x.stderr:.3f}" for x in values)
        lines.append(f"| {layer} | {cells} |")
    return lines
