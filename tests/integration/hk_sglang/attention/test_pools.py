"""What HK computes from KV pools of each layout and dtype, and pools that it does not read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention import pools
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool, NoOpMHATokenToKVPool

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, Batch, Server
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import FRESH, Row

# -- layouts and dtypes that are read


def scale(server: Server, k_scale: float, v_scale: float) -> Any:
    """Give the layer a checkpoint's scales."""
    layer = server.model.layers[0]
    layer.k_scale, layer.v_scale = torch.tensor(k_scale), torch.tensor(v_scale)
    layer.k_scale_float, layer.v_scale_float = k_scale, v_scale
    return layer


@pytest.mark.parametrize("parent", ["triton", "intel_amx"])
def test_fp8_with_scales(counters: RouteCounters, stand_ins: None, parent: str) -> None:
    """Parents that divide by the layer's scales: HK writes and reads so, and leaves keys alone."""
    fp8 = torch.float8_e4m3fn
    server = Server(kv_dtype=fp8, name=parent, layers=[{}])
    layer = scale(server, 0.25, 2.0)
    batch = Batch(server, [Row(9, 0)])
    key = torch.cat(batch.keys[0])
    (found,) = batch.run(k=key)
    assert torch.equal(key, torch.cat(batch.keys[0]))
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    stored, values = (t[batch.slots(0, 0, 9)] for t in server.pool.get_kv_buffer(0))
    assert torch.equal(stored.float(), (key / 0.25).to(fp8).float())
    assert values.dtype == fp8
    # a second chunk of the same request: its first tokens are read back, times the scales
    again = Batch(server, [Row(5, 16)])
    place = KVWriteLoc(again.slots(0, 0, 16))
    server.backend.hk.cache.write(layer, place, again.keys[0][0][:16], again.values[0][0][:16])
    (found,) = again.run()
    for made, factor in ((again.keys, 0.25), (again.values, 2.0)):
        made[0][0] = (made[0][0] / factor).to(fp8).float() * factor
    torch.testing.assert_close(found.double(), again.expected(), rtol=2e-5, atol=2e-5)
    assert counters.served == Tally(2, 14)


@pytest.mark.parametrize("page_size", [1, 16])
def test_the_pool_of_a_sliding_window(counters: RouteCounters, page_size: int) -> None:
    """Two layers, two pools, two sets of slots; slots behind the window are given back. The proof,
    at construction, in the page that no request owns, leaves no trace."""
    server = Server([{}, {"sliding_window_size": 15}], page_size=page_size, windows=(1,))
    for part in server.parts():
        assert not any(buffer.any() for buffer in (*part.k_buffer, *part.v_buffer))
    batch = Batch(server, [Row(6, 48), Row(20)])
    gone = batch.slots(0, 0, 33)  # the first key that is seen is 33, in the middle of a page
    server.pool.full_to_swa_index_mapping[gone] = 0
    outputs = batch.run()
    for index, mask in enumerate(({}, {"sliding_window": 16})):
        expected = batch.expected(index, **mask)
        torch.testing.assert_close(outputs[index].double(), expected, rtol=2e-5, atol=2e-5)
    assert counters.served == Tally(2, 2 * 26)
    fresh = Batch(server, [Row(20), FRESH])
    outputs = fresh.run()
    for index, mask in enumerate(({}, {"sliding_window": 16})):
        check_rows(outputs[index], fresh.made(index), **mask)
        fresh._check_pool(index)


# -- pools that are not read


def rejudged(server: Server, index: int = 0) -> Any:
    layer = server.model.layers[index]
    server.backend.hk._layers.pop(layer)
    return server.backend.hk._served(layer)


class Other(MHATokenToKVPool):
    pass


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("__class__", Other, "KV pool Other"),
        ("__class__", NoOpMHATokenToKVPool, "KV pool NoOpMHATokenToKVPool"),
        ("post_capture_active", True, "a KV pool whose memory comes later"),
        ("layer_shard_enabled", True, "a KV pool whose memory comes later"),
        ("kv_cache_layout", "page_major", "KV pool layout page_major"),
        ("quant_method", SimpleNamespace(name="fp4"), "KV cache quantised by fp4"),
    ],
)
def test_pools(counters: RouteCounters, field: str, value: Any, why: str) -> None:
    server = Server()
    setattr(server.pool, field, value)
    assert rejudged(server).refusal == why


def test_a_window_pool_of_another_kind(counters: RouteCounters) -> None:
    server = Server([{}, {}], windows=(1,))
    server.pool.swa_kv_pool.__class__ = NoOpMHATokenToKVPool
    assert rejudged(server).refusal == ""
    assert rejudged(server, 1).refusal == "KV pool NoOpMHATokenToKVPool"


def test_a_pool_that_does_not_read_back(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A writer that HK does not know: cached tokens are the parent's, fresh ones are not."""

    def other_way_round(tensor: torch.Tensor, page_size: int) -> torch.Tensor:
        return tensor[: len(tensor) // page_size * page_size].unflatten(0, (-1, page_size)).flip(1)

    monkeypatch.setattr(pools, "_pages", other_way_round)
    server = Server()
    assert "requests with cached tokens are left to torch_native" in caplog.text
    batch = Batch(server, MIXED)
    (found,) = batch.run()
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    ((why, left),) = counters.fallbacks.items()
    assert why.startswith("the cache does not have the expected form: written keys")
    assert left == Tally(1, EXTEND.query)
    assert counters.served == Tally(1, FRESH.query)


def test_a_pool_bound_again_at_the_same_address(counters: RouteCounters) -> None:
    """A smaller pool may begin where the larger one did: slots behind its end are not HK's."""
    server = Server()
    hk, pool = server.backend.hk, server.backend.token_to_kv_pool
    whole = hk.cache.paged(0)
    key, value = pool.get_kv_buffer(0)
    assert hk.cache.paged(0) is whole
    pool.get_kv_buffer = lambda layer_id: (key[: len(key) // 2], value[: len(value) // 2])
    assert hk.cache.paged(0).num_blocks == whole.num_blocks // 2
