"""SGLang's decode kernels on the emulated GPU, right and with stale lengths.

They run in a process that imports SGLang as on an AMD GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.triton
def test_sglang_s_decode_kernels_are_right_and_a_stale_length_is_seen() -> None:
    """The persistent kernel does not wait for all of its stores, but its result is right here."""
    command = [sys.executable, "-m", "tests.integration.shared.decode_kernels"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    lean = found["errors"].pop("llama8b decode 32x8k, SGLang triton, lean")
    assert lean["finding"] == "global-race"
    assert 0 < lean["right"] <= 1
    assert found["errors"].keys() == {
        "llama8b decode 1x8k, SGLang triton, splits",
        "llama8b decode 32x8k, SGLang triton, splits",
        "gpt-oss-full decode 1x8k, SGLang triton, splits",
    }
    for errors in found["errors"].values():
        assert errors["right"] <= 1 < errors["stale"], found
    assert found["launched"] == [
        "_fwd_grouped_kernel_stage1",
        "_fwd_kernel_stage2",
        "_lean_attention_decode_kernel",
        "get_num_kv_splits_triton",
    ]
