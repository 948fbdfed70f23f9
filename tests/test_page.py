"""The page's text: data that cannot leave their place, a policy for exactly its scripts."""

import json
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from struct import unpack

import pytest

from eos.evaluation.study import Study
from eos.report.page import ASSETS, SCRIPTS, embedded, policy, render, write_page
from eos.report.page_data import GONE, bits, page_data, pairs
from eos.report.page_text import best_prior, facts
from eos.report.reproduction import load

FACTORS = {
    "alignment": [
        {"lambda_a": weight, "ce": ce} for weight in (0.0, 0.1, 0.5) for ce in (0.0, 1.0)
    ],
    "heatmap": [{"l1": first, "l3": last} for first in (-1.0, 0.0, 2.0) for last in (6.0, 8.0)],
    "operator": [
        {"parameter": name, "value": value, "budget": budget}
        for name in ("gamma", "tau")
        for value in (0.0, 0.5, 1.0)
        for budget in (64.0, 16.0)
    ],
    "placement": [{"perturbation": name} for name in ("as found", "earlier", "later")],
}
LIMIT = 3_000_000  # bytes of a page


def add_studies(folder, name=""):
    """Add a study of each kind of chart: rows of the main study under other names and factors."""
    main = Study.load(folder / "studies" / "main.json")
    full, *others = main.rows
    for study, factors in FACTORS.items():
        rows = [
            others[place % len(others)].model_copy(
                update={"name": f"{name} {study} {place}", "factors": own}
            )
            for place, own in enumerate(factors)
        ]
        update = {"name": study, "title": f"{name} {study}", "rows": (full, *rows)}
        main.model_copy(update=update).save(folder / "studies" / f"{study}.json")


def embedded_data(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def test_the_page_holds_the_data_and_loads_nothing(reproduced, tmp_path):
    reproduction = load([reproduced])
    page = write_page(reproduction, tmp_path / "page.html").read_text(encoding="utf-8")
    assert embedded_data(page) == json.loads(json.dumps(page_data(reproduction)))
    assert len(page) < LIMIT
    assert re.findall(r'\b(?:src|href)="(?!#|data:)', page) == []
    assert "{{" not in page.replace((ASSETS / "plot.min.js").read_text(encoding="utf-8"), "")


def test_scores_of_single_questions_stay_behind(reproduced):
    source = page_data(load([reproduced]))["sources"][0]
    assert all("scores" not in row for row in source["studies"][0]["rows"])
    assert {"eos@64", "full"} <= {row["name"] for row in source["studies"][0]["rows"]}


def test_data_cannot_end_their_element():
    hostile = {"name": "</script><script>alert(1)</script><!--"}
    text = embedded(hostile)
    assert "<" not in text
    assert json.loads(text) == hostile
    page = render({"sources": []}, title="<b>&")
    assert "<title>&lt;b&gt;&amp;</title>" in page
    with pytest.raises(ValueError, match="Out of range"):
        embedded({"value": float("nan")})


def test_the_policy_names_every_script_by_its_hash():
    assert policy(["a"]) != policy(["b"])
    page = render({"sources": []}, title="")
    assert page.count("'sha256-") == len(SCRIPTS) == page.count("<script>")
    assert "default-src 'none'" in page


def test_token_sets_and_flows_survive_packing():
    kept = [0, 7, 8, 575]
    mask = b64decode(bits(kept, 576))
    assert [i for i in range(576) if mask[i >> 3] >> (i & 7) & 1] == kept
    flat = unpack("<4H", b64decode(pairs([(3, 9), (4, None)])))
    assert flat == (3, 9, 4, GONE)


def test_rows_are_compared_with_the_searched_plan_of_their_budget(reproduced):
    rows = page_data(load([reproduced]))["sources"][0]["studies"][0]["rows"]
    compared = {row["name"] for row in rows if row["ahead"]}
    assert compared == {row["name"] for row in rows if row["method"] not in ("eos", "full")}
    own = {row["factors"].get("budget"): row for row in rows if row["method"] == "eos"}
    row = next(row for row in rows if row["ahead"])
    expected = own[row["factors"]["budget"]]["average"]["accuracy"] - row["average"]["accuracy"]
    assert row["ahead"][0] == pytest.approx(expected, abs=1e-3)


def test_folders_of_one_setting_are_one_source(reproduced, tmp_path):
    shutil.copytree(reproduced / "studies", tmp_path / "other" / "studies")
    (one,) = page_data(load([reproduced, tmp_path / "other"]))["sources"]
    assert one["examples"] is not None
    file = tmp_path / "other" / "studies" / "main.json"
    file.write_text(file.read_text().replace('"seed": 1,', '"seed": 2,', 1))
    first, second = page_data(load([reproduced, tmp_path / "other"]))["sources"]
    assert (first["examples"] is None, second["examples"] is None) == (False, True)


def test_the_numbers_that_open_the_page(reproduced):
    source = page_data(load([reproduced]))["sources"][0]
    names = [name for name, _, _ in source["highlights"]]
    assert names[:2] == ["full model", "searched, 64 tokens"]
    assert names[-1] == "searched, 16 tokens"
    study = Study.load(reproduced / "studies" / "main.json")
    shown = study.row("eos@64")
    rival = best_prior(study, shown)
    assert rival.cost.flops_ratio <= 1.005 * shown.cost.flops_ratio
    dear = study.model_copy(
        update={"rows": tuple(row for row in study.rows if row.method in ("full", "eos"))}
    )
    assert best_prior(dear, shown) is None


def test_facts_of_several_machines_are_each_told_once():
    ours = {"eos": "1", "git": {"commit": "abc", "dirty": True}, "seed": 0}
    found = dict(facts([ours, ours, {"eos": "2"}], []))
    assert found == {"commit": "abc, with changes", "eos": "1; 2", "seed": "0"}


def test_pages_need_no_torch():
    code = "import sys, eos.report.page; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_scripts_fetch_nothing_and_write_no_markup_from_data():
    own = {name: (ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS[1:]}
    for text in own.values():
        assert not re.search(r"fetch\(|XMLHttpRequest|import\(|eval\(|document\.write", text)
    uses = [line for text in own.values() for line in text.splitlines() if "innerHTML" in line]
    assert len(uses) == 2  # the page's own markup, read and written
