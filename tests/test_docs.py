"""The documentation says what the code does."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

from eos.evaluation.verify import LIMIT_TOLERANCE, LIMITS, LISTING_TOLERANCE

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
METHOD = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
# how many of each the paper numbers
NUMBERED = {"Eq.": 23, "Listing": 3, "Table": 9, "Figure": 8}
NAMED = [
    "Definition 2.1",
    "Definition 2.2",
    "Definition 2.3",
    "Definition 2.4",
    "Definition 2.5",
    "Property 2.1",
]


def resolve(name):
    """Import the longest module that a dotted name starts with, and follow the rest."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def rows(text):
    """The first cells of all table rows, 'Eqs. 15, 16' split into both."""
    labels = set()
    for cell in re.findall(r"^\| ([A-Z][^|]*?) \|", text, flags=re.MULTILINE):
        kind, _, numbers = cell.partition(" ")
        labels |= {
            f"{kind.replace('Eqs.', 'Eq.')} {number.strip()}" for number in numbers.split(",")
        }
    return labels


def test_everything_the_paper_numbers_has_a_row():
    wanted = {f"{kind} {i}" for kind, count in NUMBERED.items() for i in range(1, count + 1)} | set(
        NAMED
    )
    assert wanted <= rows(METHOD)
    assert not wanted <= rows(METHOD.replace("| Eq. 11 |", "| Eq. 12 |"))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(eos\.[\w.]+)`", METHOD))))
def test_every_name_in_the_map_exists(name):
    assert resolve(name) is not None


def test_a_name_that_does_not_exist_is_noticed():
    with pytest.raises(AttributeError):
        resolve("eos.plan.Plan.nothing")


def test_the_code_in_the_readme_runs(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    torch.manual_seed(0)
    exec(block, {})
    out = capsys.readouterr().out
    assert out.startswith("hybrid (near prune)\n")
    assert "64 final" in out


def test_the_readme_table_is_what_verify_holds():
    for corner, omega in LIMITS.items():
        (row,) = [line for line in README.splitlines() if line.startswith(f"| {corner} ")]
        _, _, gamma, tau, theta, rho, _, listing, exact, _ = (
            cell.strip() for cell in row.split("|")
        )
        assert float(gamma) == omega.gamma
        assert float(rho) == omega.rho
        assert tau == "any" or float(tau) == omega.tau
        assert theta == "any" or float(theta.replace("−", "-")) == omega.theta
        assert float(listing.removeprefix("≤ ")) == LISTING_TOLERANCE[corner]
        limit = 0.0 if corner == "prune" else LIMIT_TOLERANCE[torch.float32]
        assert float(exact.removeprefix("≤ ")) == limit


def test_links_between_documents_lead_somewhere():
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "method.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), target


def test_the_version_is_the_same_everywhere():
    from eos import __version__

    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()
