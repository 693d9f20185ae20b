"""vLLM's decode kernels on the emulated GPU, right and with stale lengths, and beside HK's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.triton


def run(*command: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_vllm_s_decode_kernels_are_right_and_a_stale_length_is_seen() -> None:
    """TRITON_ATTN computes few requests in segments; ROCM_ATTN's Triton kernel has the sinks."""
    found = run("tests.integration.shared.decode_kernels")
    assert found["errors"].keys() == {
        "llama8b decode 1x8k, vLLM TRITON_ATTN",
        "llama8b decode 32x8k, vLLM TRITON_ATTN",
        "gpt-oss-full decode 1x8k, vLLM TRITON_ATTN",
        "gpt-oss-full decode 1x8k, vLLM ROCM_ATTN",
    }
    for errors in found["errors"].values():
        assert errors["right"] <= 1 < errors["stale"], found
    assert found["launched"] == [
        "kernel_paged_attention_2d",
        "kernel_unified_attention",
        "reduce_segments",
    ]


def test_the_command_compares_a_decode_step() -> None:
    """ROCM_ATTN has this step from a compiled kernel, which its row says."""
    command = ("hk_backend.cli.app", "bench", "gpu", "--cases", "llama8b decode 1x8k", "--json")
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["stock"]: row for row in json.loads(done.stdout)["cases"]}
    assert rows.keys() == {"vLLM TRITON_ATTN", "vLLM ROCM_ATTN"}
    row = rows["vLLM TRITON_ATTN"]
    assert 0 < max(row["hk_error"], row["stock_error"]) <= 1
    assert row["ratio"] == pytest.approx(
        row["stock_microseconds"] / row["hk_microseconds"], rel=0.01
    )
    assert "paged_attention_rocm" in rows["vLLM ROCM_ATTN"]["elsewhere"]
    assert rows["vLLM ROCM_ATTN"]["ratio"] is None
