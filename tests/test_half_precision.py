"""Half precision: every family, ragged batches, generation and search, beside float32."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eos.methods.registry import OPERATORS
from eos.models.families import FAMILIES

ROOT = Path(__file__).parents[1]
ROUNDING = {"bfloat16": 0.03, "float16": 0.005}  # mean error of logits, in standard deviations


@pytest.mark.parametrize("dtype", ROUNDING)
def test_half_precision_is_float32_but_for_rounding(dtype):
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.half", dtype]
    run = subprocess.run(
        command, check=True, env=environment, cwd=ROOT, capture_output=True, text=True
    )
    found = {line["kind"]: line for line in map(json.loads, run.stdout.splitlines())}
    assert set(found) == {*FAMILIES, *OPERATORS}
    for kind in FAMILIES:
        assert found[kind]["logits"] < ROUNDING[dtype], kind
        assert found[kind]["another plan"] > 3 * ROUNDING[dtype], kind  # the control
        assert found[kind]["gradients"] > 0.99, kind
    assert all(found[kind]["finite"] for kind in OPERATORS)
