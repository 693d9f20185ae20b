"""What HK computes from pools of other layouts and dtypes than SGLang's plain one."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.routing.routes import RouteCounters, Tally
from hk_backend.terms.attention_arguments import AttentionArguments
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import DECODE, FRESH, Row

PROMPTS = [EXTEND, FRESH]
"""What is HK's alone: torch_native, which has decode rows, reads the plain layout only."""


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


@pytest.fixture
def vectorised(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's vectorised pool, which it makes on ROCm only; its writer is a Triton kernel."""
    monkeypatch.setattr("sglang.srt.mem_cache.memory_pool._use_aiter", True)
    monkeypatch.setenv("SGLANG_AITER_KV_CACHE_LAYOUT", "vectorized_5d")
    since_0_5_23 = find_spec("sglang.kernels.ops.kvcache.shuffle_5d_cache")
    module = since_0_5_23.name if since_0_5_23 else "sglang.kernels.ops.attention.utils"
    monkeypatch.setattr(f"{module}.launch_reshape_and_cache_shuffle_5d", shuffle_into)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vectorised(counters: RouteCounters, vectorised: None, dtype: torch.dtype) -> None:
    server = Server(dtype=dtype)
    assert server.pool.k_buffer[0].dim() == 5
    for rows in (PROMPTS, [FRESH]):
        Batch(server, rows).check()
    assert counters.served == Tally(2, PREFILL + FRESH.query)
    assert not counters.fallbacks


@pytest.mark.parametrize("kv_dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("rows", [[FRESH, Row(30)], MIXED], ids=["fresh", "mixed"])
def test_fp8_agrees_with_torch_native(
    counters: RouteCounters, kv_dtype: torch.dtype, rows: list[Row]
) -> None:
    """Which casts, whatever scales a checkpoint has, and reads new tokens back, too."""
    server = Server(kv_dtype=kv_dtype)
    layer = server.model.layers[0]
    layer.k_scale = layer.v_scale = torch.tensor(0.5)
    layer.k_scale_float = layer.v_scale_float = 0.5
    batch = Batch(server, rows)
    (found,) = batch.run()
    assert counters.served.calls == 1
    server.backend.__class__ = type(server.backend).__base__
    (stock,) = batch.run()
    torch.testing.assert_close(found, stock, rtol=2e-5, atol=2e-5)
    assert counters.served.calls == 1


@pytest.mark.parametrize("parent", ["triton", "intel_amx"])
def test_fp8_with_scales(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, parent: str
) -> None:
    """Parents that divide by the layer's scales: HK writes and reads so, and leaves keys alone."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    monkeypatch.setitem(batch_factories(), parent, batch_factories()["torch_native"].hk_original)
    from hk_sglang.attention.install import register_attention

    register_attention()
    server = Server(kv_dtype=torch.float8_e4m3fn, name=parent, layers=[{}])
    assert isinstance(server.backend, TorchNativeAttnBackend)
    layer = server.model.layers[0]
    layer.k_scale, layer.v_scale = torch.tensor(0.25), torch.tensor(2.0)
    layer.k_scale_float, layer.v_scale_float = 0.25, 2.0
    batch = Batch(server, [Row(9, 0)])
    key = torch.cat(batch.keys[0])
    (found,) = batch.run(k=key)
    assert torch.equal(key, torch.cat(batch.keys[0]))
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    stored, values = (t[batch.slots(0, 0, 9)] for t in server.pool.get_kv_buffer(0))
    expected = (key / 0.25).to(torch.float8_e4m3fn)
    assert torch.equal(stored.float(), expected.float())
    # a second chunk of the same request: its first nine tokens are read back, times the scales
    again = Batch(server, [Row(5, 16)])
    slots = again.slots(0, 0, 16)
    again.server.backend.hk.cache.write(
        layer, place(slots), again.keys[0][0][:16], again.values[0][0][:16]
    )
    (found,) = again.run()
    dequantised = [
        (t[0].clone() / s).to(torch.float8_e4m3fn).double() * s
        for t, s in ((again.keys[0], 0.25), (again.values[0], 2.0))
    ]
    of = AttentionArguments(
        query=again.queries[0][0],
        key=dequantised[0],
        value=dequantised[1],
        query_start_loc=torch.tensor([0, 5]),
        key_start_loc=torch.tensor([0, 21]),
        out=again.queries[0][0],
    )
    expected, _ = reference.attention_prefill(of)
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)
    assert values.dtype == torch.float8_e4m3fn
    assert counters.served == Tally(2, 14)


@pytest.mark.parametrize("name", ["torch_native", "triton"])
def test_fresh_rows_beside_a_pool_that_the_gpu_does_not_read(
    counters: RouteCounters, stand_ins: None, environment: Callable[..., None], name: str
) -> None:
    """From keys as they were projected, whatever the parent reads; extends are the parent's."""
    environment(HK_BACKEND="attention", HK_DEVICE="emulated:gfx950")
    server = Server(dtype=torch.bfloat16, kv_dtype=torch.float16, name=name)
    [served] = server.backend.hk._layers.values()
    assert "torch.float16" in served.cache_refusal
    rows = [FRESH, EXTEND, DECODE, FRESH]
    batch = Batch(server, rows, "MIXED")
    (found,) = batch.run()
    parts, made = found.split([row.query for row in rows]), list(batch.made())
    for i in (0, 3):
        check_rows(parts[i], [made[i]])
    assert counters.served == Tally(1, 2 * FRESH.query)
    assert dict(counters.fallbacks) == {served.cache_refusal: Tally(1, EXTEND.query)}


def place(slots: torch.Tensor) -> Any:
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc

    return KVWriteLoc(slots)


def batch_factories() -> dict[str, Any]:
    from tests.integration.hk_sglang.attention import batch

    return batch.ATTENTION_BACKENDS


@pytest.mark.parametrize("page_size", [1, 16])
def test_the_pool_of_a_sliding_window(counters: RouteCounters, page_size: int) -> None:
    """Two layers, two pools, two sets of slots; slots behind the window are given back."""
    server = Server([{}, {"sliding_window_size": 15}], page_size=page_size, windows=(1,))
    batch = Batch(server, [Row(6, 48), Row(20)])
    gone = batch.slots(0, 0, 33)  # the first key that is seen is 33, in the middle of a page
    server.pool.full_to_swa_index_mapping[gone] = 0
    full, window = batch.run()
    torch.testing.assert_close(full.double(), batch.expected(0), rtol=2e-5, atol=2e-5)
    expected = batch.expected(1, sliding_window=16)
    torch.testing.assert_close(window.double(), expected, rtol=2e-5, atol=2e-5)
    assert counters.served == Tally(2, 2 * 26)
    fresh = Batch(server, [Row(20), FRESH])
    for index, found in enumerate(fresh.run()):
        mask = {"sliding_window": 16} if index else {}
        torch.testing.assert_close(
            found.double(), fresh.expected(index, **mask), rtol=2e-5, atol=2e-5
        )
        fresh._check_pool(index)
