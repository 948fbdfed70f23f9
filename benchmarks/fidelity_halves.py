"""Compare measured slopes on one half of the questions with differences on the other half.

`eos fidelity` measures both on the same questions, which flatters *measured*: their noise is
shared. Usage: python benchmarks/fidelity_halves.py RUN, a folder of `eos fidelity`.
"""

import argparse
import json
from itertools import chain
from pathlib import Path
from statistics import fmean

from eos.estimates import estimate
from eos.evaluation.agreement import pooled, total_ratio, weighted_mean
from eos.evaluation.slopes import Slopes

METHOD = "measured"


def main() -> None:
    """Print the pooled agreement of either half with the other, and the sums by fraction."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    lines = (parser.parse_args().run / "slopes.jsonl").read_text(encoding="utf-8").splitlines()
    pieces = [Slopes.model_validate(json.loads(line)) for line in lines[1:]]
    found = []
    for own, other in ((pieces[::2], pieces[1::2]), (pieces[1::2], pieces[::2])):
        sizes = [piece.samples for piece in own]
        slopes = weighted_mean([list(chain(*piece.gradient[METHOD])) for piece in own], sizes)
        differences = [
            estimate([x for piece in other for x in piece.difference[level][layer]])
            for level, layers in enumerate(other[0].difference)
            for layer in range(len(layers))
        ]
        gradients = [
            x.model_copy(update={"mean": y}) for x, y in zip(differences, slopes, strict=True)
        ]
        result = pooled(gradients, differences, passes=2)
        width = len(other[0].difference[0])
        sums = [
            total_ratio(slopes[at : at + width], [x.mean for x in differences[at : at + width]])
            for at in range(0, len(slopes), width)
        ]
        print(
            f"{sum(sizes)} questions against {sum(x.samples for x in other)}: rank correlation "
            f"{result.rank:.2f}, size {result.ratio} ({result.ratio_low} to {result.ratio_high}) "
            f"in {result.certain} certain cells, wrong sign {result.wrong}; sums by fraction "
            f"{', '.join(f'{x:.2f}' for x in sums)}"
        )
        found.append(result.rank)
    print(f"mean rank correlation {fmean(found):.2f}")


if __name__ == "__main__":
    main()
