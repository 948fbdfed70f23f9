"""docs/miniature.md says what the code says."""

from pathlib import Path

import numpy as np

from eos.miniature.families import FAMILIES
from eos.miniature.gallery import gallery
from eos.miniature.world import EVALUATED, examples

PAGE = Path(__file__).parent.parent / "docs" / "miniature.md"


def test_the_table_of_families_is_that_of_the_registry():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and line.endswith("% |")
    ]
    assert [row[0] for row in rows] == list(EVALUATED)
    for name, kind, group, imitates, looks, chance in rows:
        family = FAMILIES[name]
        assert (kind, group, imitates) == (family.kind, family.group, family.imitates)
        assert int(looks) == family.hops
        asked = [item.question.chance for item in examples("validation", name, count=200)]
        assert abs(float(chance.rstrip("%")) - 100 * np.mean(asked)) < 3.5


def test_the_gallery_shows_every_family_and_marks_wrong_answers(sibling, tmp_path):
    page = gallery(str(sibling), tmp_path / "gallery")
    text = page.read_text(encoding="utf-8")
    for family in EVALUATED:
        assert (page.parent / f"{family}.png").exists()
        assert f"![{family}]({family}.png)" in text
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ![")]
    assert len(rows) == len(EVALUATED)
    for *_, right, said in rows:
        assert (right == said) != (said == f" **{said.strip(' *')}** ")
    assert any(right != said for *_, right, said in rows)  # random weights are mostly wrong
