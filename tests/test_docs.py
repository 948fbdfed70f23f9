"""The documentation says what the code does."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    CLIPImageProcessorPil,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from eos import ConfigError, Plan
from eos.evaluation.verify import LIMIT_TOLERANCE, LIMITS, LISTING_TOLERANCE
from eos.methods.registry import PRESETS
from eos.models.families import FAMILIES
from eos.searching.files import read_config
from eos.testing.tiny import CLIP, IMAGE, TEXT

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
        resolve("eos.space.plan.Plan.nothing")


def readme_code():
    return re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_operator_example_in_the_readme_runs(capsys):
    torch.manual_seed(0)
    exec(readme_code()[1], {})
    out = capsys.readouterr().out
    assert out.startswith("hybrid (near prune)\n")
    assert "64 final" in out


@pytest.mark.parametrize("name", ["miniature", "llava"])
def test_the_first_example_in_the_readme_runs(capsys, monkeypatch, tmp_path, name):
    """As written; and with the name of a LLaVA of 32 layers, as a download would have it."""
    if name == "llava":
        save_small_llava(tmp_path / "llava")
    Image.new("RGB", (120, 90), "orange").save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    code = readme_code()[0]
    assert code.count('"miniature"') == 1
    scope = {}
    exec(code.replace('"miniature"', f'"{name}"'), scope)
    assert "is there a red circle ? ASSISTANT:" in capsys.readouterr().out
    assert scope["answer"].shape[1] > scope["inputs"]["input_ids"].shape[1]


def save_small_llava(folder):
    """Save model and processor as a download would have them."""
    words = ["<pad>", "<s>", "</s>", "<unk>", "USER:", "is", "there", "a"]
    words += ["red", "circle", "?", "ASSISTANT:"]
    words += [f"word{i}" for i in range(IMAGE - len(words))] + ["<image>"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{
            f"{name}_token": f"<{mark}>"
            for name, mark in [("pad", "pad"), ("bos", "s"), ("unk", "unk")]
        },
        eos_token="</s>",
        additional_special_tokens=["<image>"],
        padding_side="left",
    )
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"shortest_edge": 96}, crop_size={"height": 96, "width": 96}
        ),
        tokenizer=fast,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token="<image>",
        chat_template="{% for message in messages %}{{ message.role }}{% endfor %}",
    ).save_pretrained(folder)
    config = AutoConfig.for_model(
        "llava",
        text_config={
            **TEXT,
            "model_type": "llama",
            "num_hidden_layers": 32,
            "max_position_embeddings": 1024,
        },
        vision_config={**CLIP, "image_size": 96},
        image_token_index=IMAGE,
    )
    AutoModelForImageTextToText.from_config(config).save_pretrained(folder)


def preset_rows():
    """The README's table of presets; `python -m tests.test_docs` prints it."""
    for name, preset in PRESETS.items():
        plan = Plan.preset(name, budget=preset.nearest_budget(64))
        cost, first = plan.expected, plan.steps[0]
        cells = [
            f"`{name}`",
            ", ".join(str(step.layer) for step in plan.steps),
            first.score,
            first.operator.label,
            str(cost.final_tokens),
            f"{cost.mean_tokens:.1f}",
            f"{cost.flops_ratio:.3f}",
            f"{cost.kv_bytes_ratio:.3f}",
        ]
        yield f"| {' | '.join(cells)} |"


def test_the_readme_table_of_presets_is_generated():
    assert "\n".join(preset_rows()) in README


def test_the_readme_names_every_family():
    named = {"LLaVA-1.5", "LLaVA-NeXT", "LLaVA-OneVision", "Qwen2-VL", "Qwen2.5-VL", "Qwen3-VL"}
    named |= {"InternVL", "Idefics3", "SmolVLM", "Gemma 3"}
    assert all(name in README for name in named)
    assert len(named) == len(FAMILIES)


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


def test_the_bound_in_the_readme_is_the_logged_one():
    (claimed,) = re.findall(r"takes at most (\d\.\d+) of that bound", README)
    log = (ROOT / "docs" / "LOG.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:fastv|sparsevlm-v2) \d+ \|.*", log, flags=re.MULTILINE)
    assert len(rows) == 8
    assert f"{max(float(row.split('|')[7]) for row in rows):.2f}" == claimed


def test_the_version_is_the_same_everywhere():
    from eos import __version__

    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()


SEARCH = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", re.findall(r"eos search (.+?) --out", SEARCH))
def test_every_search_on_the_page_is_understood(line):
    first, *rest = line.split()
    source, changes = (None, [first, *rest]) if "=" in first else (first, rest)
    assert read_config(source, changes)


def test_every_setting_on_the_page_exists():
    table = SEARCH.split("## Settings by purpose")[1].split("\n## ")[0]
    shown = re.findall(r"[a-z_.]+=[^\s`;]+", table)
    assert len(shown) > 20
    for change in shown:
        assert read_config(None, [change])
    with pytest.raises(ConfigError, match="did you mean"):
        read_config(None, ["fix_layer=true"])


if __name__ == "__main__":
    print(*preset_rows(), sep="\n")
