"""Compare the mean of some runs with the mean of others, question by question, as JSON.

    python benchmarks/compare_groups.py runs/eval-16 --ours a,b,c --group tpe=d,e,f

What docs/search.md says of other searchers and of the steps from the paper's search is in
results/miniature/comparisons.json, which this wrote; a test holds the pages to it.
"""

import argparse
import json
from pathlib import Path

from compare_rows import over_families, points, read


def compared(
    folders: list[Path], ours: list[str], groups: dict[str, list[str]]
) -> dict[str, object]:
    """Give accuracies, and how far ahead ours are with a 95% interval, in points."""
    table, _ = read(folders)
    own = points(table, ours)
    found: dict[str, object] = {}
    for name, runs in groups.items():
        theirs = points(table, runs)
        ahead = over_families({key: own[key] - theirs[key] for key in own if key in theirs})
        each = over_families(theirs)
        low, high = ahead.mean - 1.96 * ahead.stderr, ahead.mean + 1.96 * ahead.stderr
        numbers = [each.mean, each.stderr, ahead.mean, low, high]
        names = ("accuracy", "stderr", "ahead", "low", "high")
        found[name] = {key: round(x, 4) for key, x in zip(names, numbers, strict=True)}
    return found


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="evaluations of the same questions")
    parser.add_argument("--ours", required=True, help="runs whose mean is compared")
    parser.add_argument("--group", action="append", default=[], help="NAME=RUN,RUN; repeatable")
    given = parser.parse_args()
    groups = dict(group.split("=", 1) for group in given.group)
    runs = {name: names.split(",") for name, names in groups.items()}
    print(json.dumps(compared(given.folders, given.ours.split(","), runs), indent=2))


if __name__ == "__main__":
    main()
