"""Compare runs of evaluations with each other, question by question.

    python benchmarks/compare_rows.py runs/eval --ours a@64,b@64,c@64 --within sparsevlm-v2@64

`eos eval` says how far each run is from the full model. This says how far the mean of some runs,
such as three seeds of a search, is from every other run whose FLOPs are at most those of one of
them, on the same questions, with a 95% interval, as Markdown. Families count equally, as in the
tables of `eos eval`.
"""

import argparse
from pathlib import Path
from statistics import fmean

from eos.estimates import Estimate, average, estimate
from eos.evaluation.ledger import Prediction
from eos.evaluation.settings import FULL, Settings
from eos.runs.journal import Journal

Table = dict[str, dict[tuple[str, int], float]]


def read(folders: list[Path]) -> tuple[Table, dict[str, float]]:
    """Read each run's scores by question, and its FLOPs."""
    found: Table = {}
    flops = {FULL: 1.0}
    for folder in folders:
        for entry in Journal(folder / "predictions.jsonl").entries():
            own = Prediction.model_validate(entry)
            found.setdefault(own.run, {})[own.family, own.number] = own.score
        plans = Settings.load(folder / "config.json").plans
        flops |= {name: plan.expected.flops_ratio for name, plan in plans.items()}
    return found, flops


def over_families(values: dict[tuple[str, int], float]) -> Estimate:
    """Mean over families of their means, with its standard error."""
    families: dict[str, list[float]] = {}
    for (family, _), value in values.items():
        families.setdefault(family, []).append(value)
    return average([estimate(own) for own in families.values()])


def points(table: Table, runs: list[str]) -> dict[tuple[str, int], float]:
    """Points of 100 of each question, mean over runs; questions that all have answered."""
    shared = set.intersection(*(set(table[run]) for run in runs))
    return {key: 100 * fmean(table[run][key] for run in runs) for key in sorted(shared)}


def row(table: Table, ours: list[str], other: str, flops: float) -> str:
    """Write one line: a run's accuracy, and how far ahead ours are."""
    own, theirs = points(table, ours), points(table, [other])
    ahead = over_families({key: own[key] - theirs[key] for key in own if key in theirs})
    low, high = ahead.mean - 1.96 * ahead.stderr, ahead.mean + 1.96 * ahead.stderr
    interval = f"{ahead.mean:+.1f} ({low:+.1f} to {high:+.1f})"
    return f"| `{other}` | {flops:.3f} | {written(over_families(theirs))} | {interval} |"


def written(accuracy: Estimate) -> str:
    """Write an accuracy with its standard error."""
    return f"{accuracy.mean:.1f} ± {accuracy.stderr:.1f}"


def main() -> None:
    """Print a table: ours, the full model, then all others within the FLOPs by accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="evaluations of the same questions")
    parser.add_argument("--ours", required=True, help="runs whose mean is compared")
    parser.add_argument("--within", required=True, help="a run whose FLOPs are the most allowed")
    parser.add_argument("--only", default="", help="compare only with runs whose names begin so")
    asked = parser.parse_args()
    (table, flops), ours = read(asked.folders), asked.ours.split(",")
    prefixes = tuple(asked.only.split(","))
    others = [
        run
        for run in table
        if run not in ours and flops[run] <= flops[asked.within] and run.startswith(prefixes)
    ]
    others.sort(key=lambda run: -over_families(points(table, [run])).mean)
    print(f"| run | FLOPs | accuracy, % | mean of {len(ours)} seeds ahead by (95%) |")
    print("|---|---:|---:|---:|")
    names, mean_flops = ", ".join(f"`{run}`" for run in ours), fmean(flops[run] for run in ours)
    accuracy = written(over_families(points(table, ours)))
    print(f"| mean of {names} | {mean_flops:.3f} | {accuracy} | |")
    for other in [FULL, *others]:
        print(row(table, ours, other, flops[other]))


if __name__ == "__main__":
    main()
