"""Plans, `reduced` and a search in bfloat16, by the script that does it at LLaVA-1.5-7B's sizes."""

import json
import subprocess
import sys
from pathlib import Path

from eos import Plan, SearchConfig
from eos.searching.files import read_config

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "full_dimensions.py"


def test_the_script_takes_a_small_model_through_all_stages(tmp_path):
    """In a process of its own: bfloat16 needs a setting that is read when torch is imported."""
    asked = [sys.executable, str(SCRIPT), "--size", "tiny", "--out", str(tmp_path)]
    subprocess.run(asked, check=True, capture_output=True)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {"build", "eos plan", "generate, full", "search, two steps"} < set(figures)
    assert all(0 < figures[name]["peak_gib"] < 4 for name in figures if name != "weights")
    assert Plan.load(tmp_path / "search" / "plan.json").expected.final_tokens == 9
    config = read_config(tmp_path / "search")
    assert isinstance(config, SearchConfig)
    assert (config.steps, config.recompute) == (2, True)
    environment = json.loads((tmp_path / "search" / "env.json").read_text())
    assert environment["dtype"] == "bfloat16"
