"""Kernels of vLLM, compiled by Triton, on the emulated GPUs: right on generated shapes.

Each runs in a process of its own (foreign_kernels.py), which imports vLLM as on an AMD GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.integration.hk_vllm.stock.foreign_kernels import KERNELS

pytestmark = pytest.mark.triton
SHAPES = 20
SEED = 20261128


def run(kernel: str, arch: str, shapes: int) -> dict[str, Any]:
    """The largest error of each shape, over the allowed one, and the launches by kernel."""
    module = "tests.integration.hk_vllm.stock.foreign_kernels"
    command = [sys.executable, "-m", module, kernel, arch, str(shapes), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.engine_proof(foreign=True)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_of_vllm_is_right(kernel: str, arch: str) -> None:
    found = run(kernel, arch, SHAPES)
    assert len(found["errors"]) == SHAPES
    assert max(found["errors"]) <= 1, found
    assert sum(found["launched"].values()) >= SHAPES


@pytest.mark.engine_proof(foreign=True)
def test_the_bound_notices_a_kernel_of_the_wrong_computation() -> None:
    """The control: a merge by exchanged log-sum-exps is far from right."""
    found = run("exchanged_states", "gfx950", 1)
    assert found["errors"][0] > 10


@pytest.mark.engine_proof(foreign=True)
def test_the_command_compares_a_layer_and_a_batch() -> None:
    """Exact words choose two cases; both kernels of attention take the batch."""
    cases = "llama8b-qkv fp8_block m16,llama70b/tp8 n1024"
    command = [sys.executable, "-m", "hk_backend.cli.app", "bench", "gpu", "--cases", cases]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(done.stdout)["cases"]
    assert sorted(row["stock"] for row in rows) == [
        "vLLM ROCM_ATTN",
        "vLLM TRITON_ATTN",
        "vLLM block_scaled_mm",
    ]
    ratios = [row["ratio"] for row in rows]
    assert ratios == sorted(ratios)
    for row in rows:
        assert 0 < max(row["hk_error"], row["stock_error"]) <= 1
        assert row["ratio"] == pytest.approx(
            row["stock_microseconds"] / row["hk_microseconds"], rel=0.01
        )
