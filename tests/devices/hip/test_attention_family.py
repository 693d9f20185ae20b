"""The attention calls that the GPU kernels compute, and one reason for each refused call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from hk_backend.devices.hip.attention_family import STORED, find
from hk_backend.kernels import Catalogue, catalogue
from hk_backend.ops import AttentionRequest
from hk_backend.terms.verdict import Verdict
from tests.devices.hip.attention_call import SPLIT_BY_CHANNEL

LLAMA = AttentionRequest(
    device_type="cuda",
    dtype=torch.bfloat16,
    num_heads=32,
    num_kv_heads=8,
    head_size=128,
    kv_dtype=torch.bfloat16,
)
NO_KERNELS = Catalogue("gfx950", {})
PAGED = replace(LLAMA, paged=True, block_size=16, cache_layouts=("B H N D", "B H N D"))
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
READ = ": the gfx950 kernels read torch.bfloat16, torch.float16 and torch.float8_e4m3fn"
NOT, HAVE = ": not in the gfx950 kernels", ": the gfx950 kernels have"


def packed(**changes: Any) -> AttentionRequest:
    return replace(LLAMA, **changes)


def paged(**changes: Any) -> AttentionRequest:
    return replace(PAGED, **changes)


@pytest.fixture(scope="module")
def kernels() -> Catalogue:
    return catalogue("gfx950")


WINDOW, CAP = {"sliding_window": 4096}, {"logits_soft_cap": 30.0}
OF_16 = ("B H N/x D/y x y", "B H D/y N/x y x")
OTHERWISE = ("B H N/y D/x y x", "B H D/y N/x y x")
REFUSED = [
    (packed(dtype=torch.float32), "dtype torch.float32"),
    (packed(kv_dtype=E4M3), "packed keys and values in torch.float8_e4m3fn: the gfx950 kernels"),
    (paged(kv_dtype=torch.float16), "torch.float16: the gfx950 kernels read bf16 and e4m3"),
    (paged(kv_dtype=torch.float8_e4m3fnuz), "keys and values in torch.float8_e4m3fnuz"),
    (paged(kv_dtype=E5M2), f"keys and values in torch.float8_e5m2{READ}"),
    (packed(kv_dtype=E5M2, **WINDOW), f"keys and values in torch.float8_e5m2{READ}"),
    (paged(kv_dtype=E4M3, block_size=8, cache_layouts=SPLIT_BY_CHANNEL), "block_size 8"),
    (packed(head_size=264), f"head_size 264{HAVE} 64, 128 and 256"),
    (paged(head_size=256, block_size=24), "head_size 256 of any_pages keys and values"),
    (paged(head_size=96, kv_dtype=E4M3), "head_size 96 of paged keys and values in torch.float8"),
    (paged(head_size=192, head_size_v=128, kv_dtype=E4M3), "values of 128 channels with keys of"),
    (packed(head_size_v=64, **CAP), "values of 64 channels with keys of 128, packed in"),
    (packed(causal=False, **WINDOW), f"sliding_window that is not causal{NOT}"),
    (packed(causal=False, **WINDOW, **CAP), f"sliding_window that is not causal{NOT}"),
    (packed(has_alibi=True, **CAP), f"logits_soft_cap with alibi_slopes{NOT}"),
    (packed(logits_soft_cap=1025.0), f"logits_soft_cap 1025, above 1024{NOT}"),
    (paged(kv_dtype=E4M3, head_size=64, **CAP), "logits_soft_cap with head_size 64 and keys"),
    (paged(block_size=24, **CAP), "logits_soft_cap with blocks of no multiple of 16 tokens"),
    (packed(has_alibi=True, causal=False), f"alibi_slopes that are not causal{NOT}"),
    (paged(has_alibi=True, kv_dtype=E4M3), "alibi_slopes with keys and values in torch.float8"),
    (paged(has_alibi=True, block_size=8), "alibi_slopes with blocks of no multiple of 16 tokens"),
    (paged(block_size=24, cache_layouts=SPLIT_BY_CHANNEL), "block_size 24"),
    (paged(cache_layouts=("B H D N", "B H N D")), 'cache with keys as "B H D N"'),
    (paged(cache_layouts=("B H D/x N x", "B H N D")), 'values as "B H N D"'),
    (paged(cache_layouts=("B H N D", "B H N/x D x")), 'values as "B H N/x'),
    (paged(cache_layouts=OF_16), 'keys as "B H N/x D/y x y" and values as "B H D/y N/x y x"'),
    (paged(cache_layouts=OTHERWISE), 'keys as "B H N/y D/x y x" and values as "B H D/y N/x y x"'),
    (paged(cache_layouts=("B N/x H x D", "B N/x H x D")), 'keys as "B N/x H x D"'),
    (paged(cache_layouts=("B H D/x N x", "B H D/y N/x y x")), 'values as "B H D/y'),
]


@pytest.mark.parametrize(("request_", "why"), REFUSED)
def test_refused(request_: AttentionRequest, why: str, kernels: Catalogue) -> None:
    refusal = find(request_, kernels)
    assert isinstance(refusal, Verdict)
    assert why in refusal.why
    assert "\n" not in refusal.why
    without_kernels = find(LLAMA, NO_KERNELS)
    assert isinstance(without_kernels, Verdict)
    assert "kernels have no size" in without_kernels.why


SINKS, BY_TOKEN = {"has_sinks": True}, ("B H D/x N x", "B H N/x D x")
SERVED = [
    (LLAMA, "packed", "none"),
    (packed(kv_dtype=None, causal=False), "packed", "none"),
    (packed(head_size=72), "packed", "none"),
    (packed(head_size=256), "packed", "none"),
    (packed(head_size=192, head_size_v=128), "packed", "none"),
    (packed(causal=False, **SINKS), "packed", "window"),
    (packed(logits_soft_cap=1024.0, causal=False), "packed", "capped"),
    (packed(logits_soft_cap=0.0), "packed", "none"),
    (packed(has_alibi=True), "packed", "alibi"),
    (paged(block_size=48), "paged", "none"),
    (paged(block_size=None, cache_layouts=None), "paged", "none"),
    (paged(head_size=256, kv_dtype=E4M3, sliding_window=1), "paged", "window"),
    (paged(head_size=192, head_size_v=128, sliding_window=9), "paged", "window"),
    (paged(logits_soft_cap=50.0, **WINDOW, **SINKS), "paged", "capped"),
    (paged(logits_soft_cap=50.0, kv_dtype=E4M3), "paged", "capped"),
    (paged(has_alibi=True, **WINDOW, **SINKS), "paged", "alibi"),
    (paged(block_size=1, **WINDOW, **SINKS), "tokens", "window"),
    (paged(block_size=1, kv_dtype=E4M3), "tokens", "none"),
    (paged(block_size=24, kv_dtype=E4M3), "any_pages", "none"),
    (paged(head_size=128, head_size_v=192, cache_layouts=BY_TOKEN), "split", "none"),
    (paged(block_size=32, kv_dtype=E4M3, cache_layouts=BY_TOKEN), "split", "none"),
    (paged(has_alibi=True, cache_layouts=SPLIT_BY_CHANNEL), "split", "alibi"),
]


@pytest.mark.parametrize(("request_", "keys", "mask"), SERVED)
def test_served(request_: AttentionRequest, keys: str, mask: str, kernels: Catalogue) -> None:
    """A request is served by the kernels with the same facts; the largest head is padded."""
    found = find(request_, kernels)
    assert not isinstance(found, Verdict)
    kernel = found[0]
    largest = max(request_.head_size, request_.value_size)
    own = request_.value_size == request_.head_size and largest in (64, 128, 256)
    expected = {
        "keys": keys,
        "mask": mask,
        "padded": not own,
        "head_size": largest if own else 128 if largest <= 128 else 256,
        "stored": STORED[request_.kv_dtype or request_.dtype],
    }
    assert {name: kernel.facts[name] for name in expected} == expected
