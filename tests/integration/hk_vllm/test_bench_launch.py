"""`hk-backend bench launch` with vLLM; its figures are nowhere asserted."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from hk_vllm.attention import probe

from hk_backend.bench.launch import linear
from hk_backend.bench.launch.measure import STEPS
from tests.integration.hk_vllm.imported import run_in_fork
from tests.integration.shared.e2e.engine import Forks

COMMAND = """
import sys
from hk_backend.cli.app import app

sys.argv = ["hk-backend", "bench", "launch", "--rounds", "1", "--json"]
app()
"""


def test_json_of_this_environments_engine(forks: Forks, tmp_path: Path) -> None:
    cases = json.loads(run_in_fork(forks, COMMAND, tmp_path))["cases"]
    assert {case["step"] for case in cases} == {*STEPS, *linear.STEPS}
    for case in cases:
        assert case["us_per_layer"] > 0
        assert case["us_empty_operator"] > 0
        assert case["ratio"] == case["us_per_layer"] / case["us_empty_operator"]
        more = case["us_per_layer"] - case["us_empty_operator"]
        assert case["us_more_per_launch"] == more / case["launches_per_layer"]
        assert case["launches_per_layer"] == (2 if "fp8" in case["step"] else 1)
        assert case["error"] == ""


def test_a_probe_s_cache_holds_keys_then_values_of_each_head() -> None:
    cache = torch.zeros(4, 2, probe.BLOCK_SIZE, 6)
    key, value = torch.randn(2, 3, 2, 3)
    slots = torch.tensor([0, probe.BLOCK_SIZE + 5, 3 * probe.BLOCK_SIZE - 1])
    probe.Impl(2, 3, 1.0).do_kv_cache_update(torch.nn.Module(), key, value, cache, slots)
    for token, slot in enumerate(slots.tolist()):
        block, place = divmod(slot, probe.BLOCK_SIZE)
        assert torch.equal(cache[block, :, place, :3], key[token])
        assert torch.equal(cache[block, :, place, 3:], value[token])
    assert cache.count_nonzero() == 2 * key.numel()
