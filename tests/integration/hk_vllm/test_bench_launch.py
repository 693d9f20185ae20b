"""`hk-backend bench launch` with vLLM; its figures are nowhere asserted."""

from __future__ import annotations

import torch
from hk_vllm.attention import probe


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
