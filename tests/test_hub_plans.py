"""Plans on the Hugging Face hub: folders in the layout of its cache, no network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eos import ConfigError, Plan, PlanError
from eos.cli import main
from eos.space import hub
from eos.space.searched import load_searched
from eos.testing.tiny import tiny_backbone

COMMIT, OLD = "a" * 40, "b" * 40
NAME = "someone/eos-miniature"


def small(budget=9, **own):
    return Plan.preset("fastv", budget=budget, visual_tokens=36, num_layers=4, **own)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache as `huggingface_hub` leaves it: a branch, a tag, and a repository without a plan."""
    root = tmp_path / "hub"
    repo = root / f"models--{NAME.replace('/', '--')}"
    small().save_pretrained(repo / "snapshots" / COMMIT, plans={4: small(4)})
    small(18).save(repo / "snapshots" / OLD / "plan.json")
    other = root / "models--someone--model"
    (other / "snapshots" / COMMIT).mkdir(parents=True)
    for place, commit in {repo / "refs" / "main": COMMIT, repo / "refs" / "v1": OLD}.items():
        place.parent.mkdir(exist_ok=True)
        place.write_text(commit)
    (other / "refs").mkdir()
    (other / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(root))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return root


def test_a_plan_comes_from_the_cache_by_name_revision_and_budget(cache):
    assert Plan.from_pretrained(NAME) == small()
    assert Plan.from_pretrained(NAME, revision="v1") == small(18)
    assert Plan.from_pretrained(NAME, revision=OLD) == small(18)
    assert Plan.from_pretrained(NAME, budget=4) == small(4)  # a file of its own
    assert Plan.from_pretrained(NAME, budget=12) == small().rescaled(12)


def test_the_command_line_takes_its_name_in_another_process(cache):
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    asked = [sys.executable, "-m", "eos", "plan", f"hub:{NAME}@9,4"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    assert "eos-miniature@9\n" in done.stdout
    assert "36 tokens, 4 layers -> 4 final" in done.stdout


def test_specs_name_plans_of_the_hub(cache, capsys):
    assert main(["plan", f"hub:{NAME}", "--budget", "4"]) == 0
    assert "-> 4 final" in capsys.readouterr().out
    assert main(["plan", f"hub:{NAME}", "--budget", "30", "--kind", "mean"]) == 0
    assert main(["plan", f"hub:{NAME}@4", "--budget", "4"]) == 1
    assert "expected one budget" in capsys.readouterr().err
    assert main(["plan", NAME]) == 1  # without the prefix: a folder that does not exist


def test_a_folder_is_read_like_a_repository(tmp_path):
    plan = load_searched("eos-miniature", 64)
    plan.save_pretrained(tmp_path / "mine", plans={16: load_searched("eos-miniature", 16)})
    assert Plan.from_pretrained(tmp_path / "mine") == plan
    assert Plan.from_pretrained(tmp_path / "mine", budget=16) == load_searched("eos-miniature", 16)
    with pytest.raises(ConfigError, match="expected no revision of a folder"):
        Plan.from_pretrained(tmp_path / "mine", revision="main")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("someone/model", {}, "expected a plan.json in 'someone/model'; found none"),
        ("someone/nothing", {}, "'someone/nothing', which is not in the cache, and the hub cannot"),
        (NAME, {"revision": "v9"}, "not in the cache at revision 'v9'"),
        ("no such/name", {}, "neither a folder nor a name as in 'organisation/name'"),
    ],
)
def test_mistakes_are_explained(cache, name, options, message):
    with pytest.raises(PlanError, match=message):
        Plan.from_pretrained(name, **options)


def test_a_plan_for_another_model_is_refused(cache, tmp_path):
    backbone = tiny_backbone("llava")
    with pytest.raises(PlanError, match=r"found one for any, of 4 of width 4096, in 'someone/eos"):
        Plan.from_pretrained(NAME, model=backbone)
    small(dims=backbone.dims).save_pretrained(tmp_path / "own")
    assert Plan.from_pretrained(tmp_path / "own", model=backbone).num_layers == 4


def card_of(files):
    """The front matter and the text of a card."""
    _, head, text = files["README.md"].split("---\n", 2)
    return yaml.safe_load(head), text


def test_the_card_says_what_a_searched_plan_is_and_how_to_use_it():
    plan = load_searched("eos-miniature", 64)
    head, text = card_of(hub.prepare(plan, NAME, results="run  accuracy\nfull 83.6"))
    assert "base_model" not in head  # the miniature is not on the hub
    assert head["library_name"] == "eos"
    found = plan.provenance["search"]
    assert f"- seed: {found['seed']}" in text
    assert all(f": {value}\n" in text for value in found["facts"].values())
    assert str(plan) in text
    assert f"{plan.expected.flops_ratio:.3f} of the full model's prefill FLOPs" in text
    assert "full 83.6" in text
    code = text.split("```python\n")[1].split("```")[0]
    compile(code, "card", "exec")
    assert f"from_pretrained({NAME!r}" in code


def test_the_card_of_a_preset_names_its_model():
    made = small(backbone="llava-hf/llava-1.5-7b-hf")
    head, text = card_of(hub.prepare(made, "me/fastv"))
    assert head["base_model"] == "llava-hf/llava-1.5-7b-hf"
    assert "The preset `fastv` at a final budget of 9." in text
    assert "## Results" not in text
    bare = made.model_copy(update={"provenance": {}})
    assert "not recorded" in card_of(hub.prepare(bare, "me/fastv"))[1]


def test_what_is_uploaded_is_what_was_prepared(monkeypatch):
    """The upload itself is one call of `HfApi.upload_folder`."""
    seen = {}

    class Api:
        def create_repo(self, repo, *, private, exist_ok):
            seen["made"] = (repo, private, exist_ok)

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            files = {path.name: path.read_text() for path in Path(folder_path).iterdir()}
            seen.update(repo=repo_id, files=files, message=commit_message)
            return "address"

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    found = small().push_to_hub("me/fastv", plans={4: small(4)}, private=True)
    assert found == "address"
    assert seen["made"] == ("me/fastv", True, True)
    assert seen["files"] == hub.prepare(small(), "me/fastv", plans={4: small(4)})
    assert set(seen["files"]) == {"plan.json", "plan-4.json", "README.md"}


def test_plans_are_made_without_the_hub():
    code = "import sys, eos.space.specs; assert 'huggingface_hub' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
