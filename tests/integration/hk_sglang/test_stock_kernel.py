"""SGLang's own Triton attention beside HK's, in a process that imports SGLang as on an AMD GPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.engine_proof
@pytest.mark.triton
def test_sglang_s_kernel_is_right_and_reads_the_window_alone() -> None:
    cases = "gpt-oss-window chunk,gpt-oss-full chunk"
    command = [sys.executable, "-m", "hk_backend.cli.app", "bench", "gpu", "--cases", cases]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["case"]: row for row in json.loads(done.stdout)["cases"]}
    assert {row["stock"] for row in rows.values()} == {"SGLang triton"}
    for row in rows.values():
        assert 0 < max(row["hk_error"], row["stock_error"]) <= 1
    window, full = (
        rows[f"gpt-oss-{each} chunk"]["stock_microseconds"] for each in ("window", "full")
    )
    assert window < full / 4  # of 8192 keys it sees 128
