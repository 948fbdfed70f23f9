"""Compare runs of one evaluation with each other, question by question.

    python benchmarks/compare_rows.py runs/eval --ours eos1@64,eos2@64,eos3@64 \
        --others even@64,tome-original@64

`eos eval` says how far each run is from the full model. This says how far the mean of some runs,
such as three seeds of a search, is from each other run on the same questions, with a 95% interval.
Families count equally, as in the tables of `eos eval`.
"""

import argparse
from math import sqrt
from pathlib import Path
from statistics import fmean, variance

from eos.evaluation.ledger import Prediction, whole_lines

Table = dict[str, dict[tuple[str, int], bool]]


def read(folder: Path) -> Table:
    """Read which questions each run answered rightly, by family and number."""
    found: Table = {}
    for line in whole_lines(folder / "predictions.jsonl"):
        told = Prediction.model_validate_json(line)
        found.setdefault(told.run, {})[told.family, told.number] = told.correct
    return found


def difference(table: Table, ours: list[str], other: str) -> tuple[float, float]:
    """Mean of ``ours`` minus ``other`` in points, and its standard error; families weigh alike."""
    shared = set.intersection(*(set(table[run]) for run in (*ours, other)))
    families: dict[str, list[float]] = {}
    for key in sorted(shared):
        own = fmean(table[run][key] for run in ours)
        families.setdefault(key[0], []).append(100 * (own - table[other][key]))
    mean = fmean(fmean(values) for values in families.values())
    spread = sum(variance(values) / len(values) for values in families.values())
    return mean, sqrt(spread) / len(families)


def main() -> None:
    """Print one line a comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ours", required=True, help="runs whose mean is compared")
    parser.add_argument("--others", default="", help="runs to compare with; all if empty")
    asked = parser.parse_args()
    table, ours = read(asked.folder), asked.ours.split(",")
    others = asked.others.split(",") if asked.others else [x for x in table if x not in ours]
    print(f"{', '.join(ours)}: mean minus each of these, in points, 95% interval")
    for other in others:
        mean, error = difference(table, ours, other)
        print(
            f"{other:28} {mean:+6.1f}   {mean - 1.96 * error:+6.1f} to {mean + 1.96 * error:+6.1f}"
        )


if __name__ == "__main__":
    main()
