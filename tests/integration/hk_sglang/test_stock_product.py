"""SGLang's MXFP8 product beside HK's, in a process that imports SGLang as on an AMD GPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.triton
def test_sglang_s_product_of_mx_is_right_and_has_a_ratio() -> None:
    cases = "llama70b-o/tp8 mxfp8 m16"
    command = [sys.executable, "-m", "hk_backend.cli.app", "bench", "gpu", "--cases", cases]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (row,) = json.loads(done.stdout)["cases"]
    assert row["stock"] == "SGLang mxfp8_linear"
    assert 0 < max(row["hk_error"], row["stock_error"]) <= 1
    assert row["ratio"] > 0
