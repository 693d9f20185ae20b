"""What HK computes from KV pools of each layout and dtype, and pools that it does not read."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention import pools
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool, NoOpMHATokenToKVPool

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import DECODE, FRESH, Row

PROMPTS = [EXTEND, FRESH]
"""What is HK's alone: torch_native, which has decode rows, reads the plain layout only."""

# -- layouts and dtypes that are read


@pytest.mark.parametrize("rows", [[FRESH, Row(30)], PROMPTS], ids=["fresh", "extend"])
def test_hnd(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, rows: list[Row]) -> None:
    monkeypatch.setenv("SGLANG_USE_HND_KVCACHE", "1")
    server = Server()
    assert server.pool.k_buffer[0].shape == (65, 2, 16, 64)
    Batch(server, rows).check()
    assert counters.served.calls == 1
    assert not counters.fallbacks


def shuffle_into(
    key: torch.Tensor, value: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor
) -> None:
    """AITER's writer in torch: keys `[B, H, D/x, N, x]`, values `[B, H, N/x, D, x]`."""
    x, page = k.shape[4], k.shape[3]
    pages, offsets = slots // page, slots % page
    k[pages, :, :, offsets] = key.unflatten(2, (-1, x))
    v[pages, :, offsets // x, :, offsets % x] = value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vectorised(
    counters: RouteCounters,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
) -> None:
    """SGLang's pool of five axes, which it makes on ROCm only; its writer is a Triton kernel. The
    device is asked about its pages and its layouts."""
    monkeypatch.setattr("sglang.srt.mem_cache.memory_pool._use_aiter", True)
    monkeypatch.setenv("SGLANG_AITER_KV_CACHE_LAYOUT", "vectorized_5d")
    since_0_5_23 = find_spec("sglang.kernels.ops.kvcache.shuffle_5d_cache")
    module = since_0_5_23.name if since_0_5_23 else "sglang.kernels.ops.attention.utils"
    monkeypatch.setattr(f"{module}.launch_reshape_and_cache_shuffle_5d", shuffle_into)
    server = Server(dtype=dtype)
    assert server.pool.k_buffer[0].dim() == 5
    for rows in (PROMPTS, [FRESH]):
        Batch(server, rows).check()
    assert counters.served == Tally(2, PREFILL + FRESH.query)
    assert not counters.fallbacks
    environment(HK_DEVICE="emulated:gfx950")
    [served] = Server(dtype=torch.bfloat16, page_size=8).backend.hk._layers.values()
    why = "block_size 8: the gfx950 kernels read multiples of 16 of a cache with"
    assert (served.refusal, served.cache_refusal[: len(why)]) == ("", why)


def scale(server: Server, k_scale: float, v_scale: float) -> Any:
    """Give the layer a checkpoint's scales."""
    layer = server.model.layers[0]
    layer.k_scale, layer.v_scale = torch.tensor(k_scale), torch.tensor(v_scale)
    layer.k_scale_float, layer.v_scale_float = k_scale, v_scale
    return layer


@pytest.mark.parametrize("kv_dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("rows", [[FRESH, Row(30)], MIXED], ids=["fresh", "mixed"])
def test_fp8_agrees_with_torch_native(
    counters: RouteCounters, kv_dtype: torch.dtype, rows: list[Row]
) -> None:
    """Which casts, whatever scales a checkpoint has, and reads new tokens back, too."""
    server = Server(kv_dtype=kv_dtype)
    scale(server, 0.5, 0.5)
    batch = Batch(server, rows)
    (found,) = batch.run()
    assert counters.served.calls == 1
    with server.alone():
        (stock,) = batch.run()
    torch.testing.assert_close(found, stock, rtol=2e-5, atol=2e-5)
    assert counters.served.calls == 1


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


@pytest.mark.parametrize(
    ("name", "kv_dtype"),
    [("torch_native", torch.float16), ("triton", torch.float16), ("triton", torch.float8_e4m3fn)],
)
def test_fresh_rows_beside_another_pool(
    counters: RouteCounters,
    stand_ins: None,
    environment: Callable[..., None],
    name: str,
    kv_dtype: torch.dtype,
) -> None:
    """By the GPU's kernels, from keys as they were projected, whatever the parent reads; an extend
    is HK's, too, where the GPU reads the pool."""
    environment(HK_BACKEND="attention", HK_DEVICE="emulated:gfx950")
    server = Server(dtype=torch.bfloat16, kv_dtype=kv_dtype, name=name)
    [served] = server.backend.hk._layers.values()
    readable = kv_dtype is torch.float8_e4m3fn
    for rows in ([FRESH, DECODE, FRESH], [FRESH, EXTEND, DECODE, FRESH]):
        batch = Batch(server, rows, "MIXED")
        parts, made = batch.run()[0].split([row.query for row in rows]), list(batch.made())
        if not (readable and EXTEND in rows):  # with an extend they are read back, rounded
            for i in (0, -1):
                check_rows(parts[i], [made[i]])
    extend = Tally(1, EXTEND.query)
    assert counters.served == Tally(2, 4 * FRESH.query + (extend.tokens if readable else 0))
    assert dict(counters.fallbacks) == ({} if readable else {served.cache_refusal: extend})
    assert ("torch.float16" in served.cache_refusal) != readable


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
