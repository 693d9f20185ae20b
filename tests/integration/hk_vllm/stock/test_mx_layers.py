"""vLLM's MXFP8 product and Triton's own scaled product beside HK's, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.triton
def test_products_of_mx_are_right_and_have_ratios() -> None:
    cases = "llama70b-o/tp8 mxfp8 m16,llama70b-o/tp8 mxfp4_mxfp8 m16"
    command = [sys.executable, "-m", "hk_backend.cli.app", "bench", "gpu", "--cases", cases]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["stock"]: row for row in json.loads(done.stdout)["cases"]}
    assert rows.keys() == {"vLLM mxfp8_linear", "Triton tl.dot_scaled"}
    for row in rows.values():
        assert 0 < max(row["hk_error"], row["stock_error"]) <= 1
        assert row["ratio"] > 0
