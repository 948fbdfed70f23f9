"""docs/miniature.md says what the code says."""

from pathlib import Path

import numpy as np

from eos.miniature.families import FAMILIES
from eos.miniature.world import EVALUATED, examples

PAGE = Path(__file__).parent.parent / "docs" / "miniature.md"


def test_the_table_of_families_is_that_of_the_registry():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and line.endswith("% |")
    ]
    assert [row[0] for row in rows] == list(EVALUATED)
    for name, kind, group, mirrors, looks, chance in rows:
        family = FAMILIES[name]
        assert (kind, group, mirrors) == (family.kind, family.group, family.mirrors)
        assert int(looks) == family.hops
        asked = [item.question.chance for item in examples("validation", name, count=200)]
        assert abs(float(chance.rstrip("%")) - 100 * np.mean(asked)) < 3.5
