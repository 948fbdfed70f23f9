"""Page: one HTML file with all that a reproduction holds, which loads nothing from anywhere.

Data travel as JSON in the page and are drawn by the scripts in ``assets/``, which put names into
text nodes only. A content security policy allows exactly these scripts and no request.
"""

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from eos.report.page_data import page_data
from eos.report.reproduction import Reproduction
from eos.runs.files import write_atomically
from eos.version import __version__

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("plot.min.js", "parts.js", "charts.js", "plan.js", "page.js")


def write_page(reproduction: Reproduction, out_path: str | Path) -> Path:
    """Write the page of a reproduction, from its files alone."""
    data = page_data(reproduction)
    names = sorted({study.backbone for study in reproduction.studies})
    write_atomically(out_path, render(data, title=f"EOS on {', '.join(names) or 'no studies'}"))
    return Path(out_path)


def render(data: dict[str, Any], *, title: str) -> str:
    """Put data, style and scripts into the page's template."""
    scripts = [_asset(name) for name in SCRIPTS]
    parts = {
        "policy": policy(scripts),
        "title": escape(title),
        "style": _asset("page.css"),
        "version": escape(__version__),
        "licenses": escape(_asset("plot.licenses.txt")),
        "data": embedded(data),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    page = _asset("page.html")
    for name in parts:
        assert page.count(f"{{{{{name}}}}}") == 1, name
    # split first: what is put in may itself contain the name of a part
    pieces = page.split("{{")
    filled = [piece.partition("}}") for piece in pieces[1:]]
    return pieces[0] + "".join(parts[name] + rest for name, _, rest in filled)


def embedded(data: dict[str, Any]) -> str:
    """Write data as JSON that cannot end the script element that holds it."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def policy(scripts: list[str]) -> str:
    """Allow these scripts, styles and pictures inside the page; forbid every request."""
    hashes = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
