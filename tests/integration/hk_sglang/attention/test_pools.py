"""KV pools that HK does not read: of another kind, or with other bytes than their kind says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.layers import ServedLayer
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, NoOpMHATokenToKVPool

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, Batch, Server
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import FRESH


def test_pools_that_hk_does_not_know(counters: RouteCounters) -> None:
    class Other(MHATokenToKVPool):
        pass

    server = Server()
    server.pool.__class__ = Other
    assert rejudged(server) == "KV pool Other"
    server.pool.__class__ = NoOpMHATokenToKVPool
    assert rejudged(server) == "KV pool NoOpMHATokenToKVPool"


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("post_capture_active", True, "a KV pool whose memory comes later"),
        ("layer_shard_enabled", True, "a KV pool whose memory comes later"),
        ("kv_cache_layout", "page_major", "KV pool layout page_major"),
        ("quant_method", SimpleNamespace(name="fp4"), "KV cache quantised by fp4"),
    ],
)
def test_pools(counters: RouteCounters, field: str, value: Any, why: str) -> None:
    server = Server()
    setattr(server.pool, field, value)
    assert rejudged(server) == why


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fnuz], ids=str)
def test_a_pool_in_a_dtype_that_is_not_read(counters: RouteCounters, dtype: torch.dtype) -> None:
    """Its layers are served, and so are fresh rows, which do not read it."""
    server = Server()
    server.pool.dtype = dtype
    assert rejudged(server) == ""
    (served,) = server.backend.hk._layers.values()
    why = f"keys and values in {dtype} with queries in torch.float32"
    assert served.cache_refusal == why


def test_a_window_pool_of_another_kind(counters: RouteCounters) -> None:
    server = Server([{}, {}], windows=(1,))
    server.pool.swa_kv_pool.__class__ = NoOpMHATokenToKVPool
    assert rejudged(server) == ""
    assert rejudged(server, 1) == "KV pool NoOpMHATokenToKVPool"


def rejudged(server: Server, index: int = 0) -> str:
    layer = server.model.layers[index]
    server.backend.hk._layers.pop(layer)
    served: ServedLayer = server.backend.hk._served(layer)
    return served.refusal


def test_a_pool_that_does_not_read_back(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A writer that HK does not know: cached tokens are the parent's, fresh ones are not."""
    from hk_sglang.attention import pools

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
    Batch(server, [FRESH]).check()
    assert counters.served == Tally(2, 2 * FRESH.query)


@pytest.mark.parametrize("page_size", [1, 16])
def test_the_proof_leaves_no_trace(counters: RouteCounters, page_size: int) -> None:
    """At construction, before any request, in the page that no request owns."""
    server = Server([{}, {}], page_size=page_size, windows=(1,))
    for part in server.parts():
        for buffer in (*part.k_buffer, *part.v_buffer):
            assert not buffer.any()


def test_pages_that_the_device_does_not_read(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the GPU kernels refuse pages of one token: prompts without cached tokens stay HK's."""
    from hk_backend.terms.verdict import SERVED, refused

    why = "block_size 1: the gfx950 kernels read multiples of 16"
    monkeypatch.setattr(
        "hk_sglang.attention.layers.ask",
        lambda request: refused(why) if request.block_size == 1 else SERVED,
    )
    server = Server(page_size=1)
    Batch(server, [EXTEND]).check()
    fell_back(counters, why, EXTEND.query)
    Batch(server, [FRESH]).check()
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
