"""The contest of each ROCm backend: its own builder, cache and writer, for a layer of its own."""

from __future__ import annotations

import pytest
from hk_vllm.attention import contest

from tests.integration.hk_vllm.rocm.parents import Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer
from tests.integration.hk_vllm.rocm.torch_kernels.common import FP8
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.evidence import Bench

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture(autouse=True)
def short_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several blocks, the last one not full."""
    monkeypatch.setattr(contest, "PROMPTS", (5, 70))


def test_both_sides_compute_a_prompt(bench: Bench, parent: Parent) -> None:
    layer = rocm_layer(parent, wrapped=True)
    assert bench.rows == [(5, 70)]
    for tokens, outputs in bench.outputs.items():
        row = contest.tensors(layer.impl, tokens)
        for out in outputs:
            check_rows(out, [row])
        with pytest.raises(AssertionError):
            check_rows(outputs[1], [row], sliding_window=4)


def test_a_cache_in_fp8(bench: Bench, parent: Parent) -> None:
    """HK reads what was projected, and so do some parents; others read what the cache holds."""
    layer = rocm_layer(parent, wrapped=True, cache_dtype="fp8")
    assert "fp8 cache" in layer.impl._hk_decision.kind.layer
    assert bench.rows == [(5, 70)]
    for tokens, (ours, theirs) in bench.outputs.items():
        query, key, value = contest.tensors(layer.impl, tokens)
        check_rows(ours, [(query, key, value)])
        if parent.member not in ("ROCM_ATTN", "ROCM_AITER_FA") or parent.shuffled:
            key, value = (each.to(FP8).to(each.dtype) for each in (key, value))
        check_rows(theirs, [(query, key, value)])
