"""Verdicts: whether each claim of the paper holds in a reproduction, with the numbers.

Comparisons of methods hold where paired 95% intervals say so, do not where they say the opposite,
and are undecided between. Hybrids are counted; values of the operator are judged by the best of
several less the worst, which flatters small ranges. Claims whose study is missing have no verdict.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import TypeAlias

from eos.config import Frozen
from eos.evaluation.estimates import Difference, signed
from eos.evaluation.study import Study, StudyRow, compare
from eos.evaluation.verification import Verification
from eos.report.comparison import budgets_of, reduced_at
from eos.report.page_text import SEARCHED, prior_within
from eos.report.plans import GREEK, steps_of
from eos.report.reproduction import Reproduction
from eos.tables import markdown_table

SLIGHT = 1.0  # points that count as equal in practice
NEAR = 1  # layers from the found one that count as its neighbourhood
WORDS = {True: "holds", False: "does not hold", None: "undecided"}


# whether a claim holds (None: undecided), and the numbers; None if there are no numbers
Finding: TypeAlias = tuple[bool | None, str] | None


class Verdict(Frozen):
    """A claim of the paper, whether it holds (None: undecided), and the numbers."""

    claim: str
    holds: bool | None
    text: str


def verdicts(reproduction: Reproduction) -> list[Verdict]:
    """Judge every claim that the files of a reproduction allow."""
    found = {claim: judge(reproduction) for claim, judge in CLAIMS.items()}
    return [Verdict(claim=x, holds=own[0], text=own[1]) for x, own in found.items() if own]


def as_markdown(found: Sequence[Verdict]) -> str:
    """Write verdicts as a table, and name the claims that have none."""
    rows = [[own.claim, f"**{WORDS[own.holds]}**", own.text] for own in found]
    text = markdown_table(["claim", "verdict", "numbers"], rows, align="lll") + "\n"
    missing = [claim for claim in CLAIMS if claim not in {own.claim for own in found}]
    if missing:
        text += f"\nNot judged, since their studies are missing: {'; '.join(missing)}.\n"
    return text


def corners(reproduction: Reproduction) -> Finding:
    """Prior methods are points of the operator's space."""
    checks = reproduction.one(Verification)
    if checks is None:
        return None
    every = [*checks.listing, *checks.limits]
    failed = [check.corner for check in every if not check.passed]
    exact = [check.discrepancy for check in every if check.dtype == "float64"]
    text = f"{len(every)} checks of the corners"
    text += f", largest discrepancy in float64 {max(exact):.0e}" if exact else ""
    text += f"; above the tolerance: {', '.join(failed)}" if failed else ""
    study = reproduction.study("reproduce")
    rows = _pairs(study, "sparsevlm-v2-original", "sparsevlm-v2") if study else ()
    for budget, own, unified in rows:
        text += f"; SparseVLM v2 as a point of the space less its own code at {budget}: "
        text += _points(compare(unified, own))
    return not failed, text


def hybrids(study: Study) -> Finding:
    """The searched operators are interior points."""
    rows = [row for own in _searched(study).values() for row in own]
    if not rows:
        return None
    steps = [step for row in rows for step in steps_of(row)]
    inside = sum(step.hybrid for step in steps)
    moving = sum(step.mass > 0 for step in steps)
    names = sorted({str(step.kind) for step in steps if not step.hybrid})
    text = (
        f"{inside} of {len(steps)} steps in {len(rows)} found plans are interior points of the "
        f"paper's space, the others {' or '.join(names) or 'none'}; {moving} pass attention weight "
        "on, which the paper's space has not"
    )
    return inside > len(steps) / 2, text


def ahead(reproduction: Reproduction) -> Finding:
    """Found plans beat every prior method of equal or lower FLOPs, whatever it keeps."""
    margins = _margins(reproduction)
    if not margins:
        return None
    text = "; ".join(f"at {b} {_points(own)} over {name}" for b, (name, own) in margins.items())
    behind = any(own.high < 0 for _, own in margins.values())
    holds = all(own.low > 0 for _, own in margins.values())
    return False if behind else holds or None, text


def margin_grows(reproduction: Reproduction) -> Finding:
    """The margin grows as the budget shrinks."""
    margins = _margins(reproduction)
    if len(margins) < 2:
        return None
    first, *_, last = [own for _, own in margins.values()]
    apart = last.low > first.high or last.high < first.low
    text = ", ".join(f"{signed(own.points)} at {b}" for b, (_, own) in margins.items())
    text += " points over the best prior method of equal or lower FLOPs"
    return last.points > first.points if apart else None, text


def parameters(study: Study) -> Finding:
    """τ and γ of the central reducer matter most."""
    ranges: dict[str, dict[int, Difference]] = {}
    for budget in budgets_of(study.rows):
        for name in GREEK:
            own = [row for row in reduced_at(study, budget) if row.factors.get("parameter") == name]
            if len(own) > 1:
                ordered = sorted(own, key=lambda row: row.average.accuracy)
                ranges.setdefault(name, {})[budget] = compare(ordered[-1], ordered[0])
    if len(ranges) < 3:
        return None
    means = {name: fmean(x.points for x in own.values()) for name, own in ranges.items()}
    order = sorted(means, key=lambda name: -means[name])
    rest = means[order[2]]  # the two that matter most must do so beyond what the others reach
    clear = all(any(x.low > rest for x in ranges[name].values()) for name in order[:2])
    text = "best less worst value, mean of the budgets: " + ", ".join(
        f"{GREEK[name]} {means[name]:.1f}" for name in order
    )
    if not clear:
        return None, f"{text} points, within their errors of each other"
    return set(order[:2]) == {"tau", "gamma"}, f"{text} points"


def alignment(study: Study) -> Finding:
    """Without the alignment term the search finds worse plans.

    All weights together stand against none: the best of them would look better than it is.
    """
    found: dict[int, Difference] = {}
    texts = []
    for budget in budgets_of(study.rows):
        rows = {
            (row.factors["lambda_a"], row.factors["ce"]): row for row in reduced_at(study, budget)
        }
        without = rows.pop((0.0, 1.0), None)
        weighted = [row for (_, ce), row in rows.items() if ce]
        if without is not None and weighted:
            found[budget] = compare(weighted, without)
            mean, none = fmean(row.cost.flops_ratio for row in weighted), without.cost.flops_ratio
            texts.append(f"{_points(found[budget])} at {budget} (FLOPs {mean:.3f}, {none:.3f})")
    if not found:
        return None
    needed = any(own.low > 0 for own in found.values())
    harmful = any(own.high < 0 for own in found.values())
    holds = None if needed == harmful else needed
    return holds, f"mean of all weights less none: {'; '.join(texts)}"


def plateau(study: Study) -> Finding:
    """Accuracy hardly changes near the found layers, and falls far from them."""
    near: list[float] = []
    far: list[float] = []
    for budget in budgets_of(study.rows):
        base = study.row(f"{SEARCHED}@{budget}")
        layers = [step.layer for step in steps_of(base)]
        for row in reduced_at(study, budget):
            if "parameter" not in row.factors:
                continue
            home = layers[int(str(row.factors["parameter"])[1:]) - 1]
            distance = abs(int(row.factors["value"]) - home)
            if distance:
                (near if distance <= NEAR else far).append(compare(row, base).points)
    if not near or not far:
        return None
    text = (
        f"a reducer moved by one layer changes the accuracy by {signed(fmean(near))} points on "
        f"average (worst {signed(min(near))}), by more {signed(fmean(far))} (worst "
        f"{signed(min(far))})"
    )
    return fmean(near) > -SLIGHT and fmean(far) < fmean(near), text


def one_plan(study: Study) -> Finding:
    """One searched configuration serves all budgets."""
    losses = {b: compare(one, own) for b, own, one in _pairs(study, SEARCHED, "eos-one")}
    if not losses:
        return None
    text = "rescaled less searched for the budget: " + ", ".join(
        f"{_points(own)} at {budget}" for budget, own in losses.items()
    )
    holds = all(own.low > -SLIGHT for own in losses.values())
    worse = any(own.high < -SLIGHT for own in losses.values())
    return False if worse else holds or None, text


def _of(name: str, judge: Callable[[Study], Finding]) -> Callable[[Reproduction], Finding]:
    """Judge by the study of a name; no verdict without it."""

    def judged(reproduction: Reproduction) -> Finding:
        study = reproduction.study(name)
        return judge(study) if study else None

    return judged


CLAIMS: dict[str, Callable[[Reproduction], Finding]] = {
    "The corners are recovered": corners,
    "Hybrid operators are found": _of("main", hybrids),
    "Found plans are ahead of every prior method of equal or lower FLOPs": ahead,
    "The margin grows as the budget shrinks": margin_grows,
    "τ and γ matter most": _of("operator", parameters),
    "Alignment is needed": _of("alignment", alignment),
    "Placement has a plateau": _of("layers", plateau),
    "One configuration serves all budgets": _of("budgets", one_plan),
}


def _searched(study: Study) -> dict[int, list[StudyRow]]:
    """List the default search's plans of every seed by budget, largest first."""
    budgets = budgets_of([row for row in study.rows if row.method == SEARCHED])
    return {b: [row for row in reduced_at(study, b) if row.method == SEARCHED] for b in budgets}


def _margins(reproduction: Reproduction) -> dict[int, tuple[str, Difference]]:
    """Compare found plans, seeds averaged, with the best prior method that costs no more.

    By budget, largest first. Where another study has both on more questions, those count.
    """
    known = {name: reproduction.study(name) for name in ("larger", "main", "reproduce")}
    studies = {name: study for name, study in known.items() if study}
    found = {}
    for name in [name for name in ("larger", "main") if name in studies]:  # every prior method
        for budget, own in _searched(studies[name]).items():
            rivals = prior_within(studies[name], max(row.cost.flops_ratio for row in own))
            if rivals:
                best = max(rivals, key=lambda row: row.average.accuracy)
                names = [row.name for row in own]
                found[budget] = best.name, _most_certain(studies.values(), names, best.name)
    return dict(sorted(found.items(), reverse=True))


def _most_certain(studies: Iterable[Study], own: Sequence[str], other: str) -> Difference:
    """Compare the rows of these names in the study that has them on the most questions."""
    having = [study for study in studies if {*own, other} <= {row.name for row in study.rows}]
    rows = {row.name: row for row in max(having, key=lambda study: study.limit).rows}
    return compare([rows[name] for name in own], rows[other])


def _pairs(study: Study, first: str, second: str) -> Iterator[tuple[int, StudyRow, StudyRow]]:
    """Give the rows of two methods at each budget that has both."""
    for budget in budgets_of(study.rows):
        rows = {row.method: row for row in reduced_at(study, budget)}
        if {first, second} <= set(rows):
            yield budget, rows[first], rows[second]


def _points(own: Difference) -> str:
    return f"{signed(own.points)} ({signed(own.low)} to {signed(own.high)})"
