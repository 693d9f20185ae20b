"""KV pools of SGLang in each layout and dtype: those that HK reads, and others.

Other tests hold what HK reads of a batch before its layers run.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.hk_attention import NO_STEP, HKAttention
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool, NoOpMHATokenToKVPool

from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import DECODE, FRESH, Row

# -- layouts and dtypes that are read


def scale(server: Server, k_scale: float, v_scale: float) -> Any:
    """Give the layer scales as a checkpoint would."""
    layer = server.model.layers[0]
    layer.k_scale, layer.v_scale = torch.tensor(k_scale), torch.tensor(v_scale)
    layer.k_scale_float, layer.v_scale_float = k_scale, v_scale
    return layer


@pytest.mark.parametrize("parent", ["triton", "intel_amx"])
def test_fp8_with_scales(counters: RouteCounters, stand_ins: None, parent: str) -> None:
    """Some parents divide keys by the layer's scales. HK writes and reads in the same way, and does
    not change the keys that it is handed."""
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
    """Two layers have two pools with two sets of slots, and slots behind the window are given back.

    HK's proof of the pool writes to the page that no request owns, and leaves no trace.
    """
    server = Server([{}, {"sliding_window_size": 15}], page_size=page_size, windows=(1,))
    for part in server.parts():
        assert not any(buffer.any() for buffer in (*part.k_buffer, *part.v_buffer))
    batch = Batch(server, [Row(6, 48), Row(20)])
    gone = batch.slots(0, 0, 33)  # key 33, in the middle of a page, is the first one that is seen
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
    return server.backend.hk._layers[layer]


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


def test_a_pool_bound_again_at_the_same_address(counters: RouteCounters) -> None:
    """A smaller pool may begin where the larger one did. Slots behind its end are not HK's."""
    server = Server()
    hk, pool = server.backend.hk, server.backend.token_to_kv_pool
    whole = hk.cache.paged(0)
    key, value = pool.get_kv_buffer(0)
    assert hk.cache.paged(0) is whole
    pool.get_key_buffer = lambda layer_id: key[: len(key) // 2]
    pool.get_value_buffer = lambda layer_id: value[: len(value) // 2]
    assert hk.cache.paged(0).num_blocks == whole.num_blocks // 2


# -- a batch's metadata: when HK plans the batch, and what it reads for that


def test_capture_is_the_parents(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured graph replays without Python: HK is in none, and counts no user's tokens."""
    monkeypatch.setattr("sglang.srt.model_executor.runner_utils.capture_mode.is_capture_mode", True)
    batch = Batch(Server(), MIXED, "TARGET_VERIFY")
    batch.check()
    assert counters.dummy == Tally(1, batch.num_tokens)
    assert not counters.served.calls
    assert not counters.fallbacks


def test_metadata_in_two_steps(counters: RouteCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent may split its metadata for graphs.

    HK plans once, outside of graphs and before the layers run.
    """
    calls: list[Any] = []
    parent = TorchNativeAttnBackend
    monkeypatch.delattr(parent, "init_forward_metadata")
    for name, note in {
        "out": lambda self, batch, in_capture=False: calls.append(("out", in_capture)),
        "in": lambda self, batch: calls.append(("in", self.hk._planned.plan.tokens)),
    }.items():
        monkeypatch.setattr(parent, f"init_forward_metadata_{name}_graph", note, raising=False)
    server = Server()
    Batch(server, [EXTEND, FRESH]).check()
    assert calls == [("out", False), ("in", PREFILL)]
    assert counters.served == Tally(1, PREFILL)
    calls.clear()
    batch = Batch(server, [EXTEND, FRESH])
    server.backend.init_forward_metadata_out_graph(batch.metadata, in_capture=True)
    assert calls == [("out", True)]


def test_nothing_waits_for_the_device(
    counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan reads lengths from lists on the host, and asks no tensor for a value."""
    batch = Batch(Server([{}, {"sliding_window_size": 7}], windows=(1,)), MIXED)
    hk: HKAttention = batch.server.backend.hk

    def read(self: torch.Tensor, *args: Any) -> Any:
        raise AssertionError("a tensor was read on the host")

    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, read)
    with hk.planned(batch.metadata):
        pass
    assert hk._planned is not None
    assert hk._planned.plan.tokens == PREFILL


@pytest.mark.parametrize("mode", ["DECODE", "IDLE"])
def test_decode_has_no_plan(counters: RouteCounters, mode: str) -> None:
    """The parent computes decode, without a plan of HK's, and it does not count as prefill.

    No plan is left of the batch before.
    """
    server = Server()
    Batch(server, MIXED).check()
    batch = Batch(server, [DECODE, Row(1, 20)], mode, seed=1)
    batch.server.backend.init_forward_metadata(batch.metadata)
    assert batch.server.backend.hk._planned is None
    if mode == "DECODE":
        batch.check()
    assert counters.served == Tally(1, PREFILL)
    assert not counters.fallbacks


def test_a_layer_met_after_the_batch_was_planned(counters: RouteCounters) -> None:
    """A batch has no step if HK has no layer. The next batch knows the layer and has a step."""
    server = Server()
    server.backend.hk._layers.clear()
    Batch(server, MIXED).check()
    fell_back(counters, NO_STEP, PREFILL)
    Batch(server, MIXED).check()
    assert counters.served == Tally(1, PREFILL)


def test_page_tables_are_read_with_the_metadata(counters: RouteCounters) -> None:
    """SGLang's scheduler may change page tables while the layers run."""
    batch = Batch(Server([{}, {"sliding_window_size": 15}], windows=(1,)), [EXTEND, FRESH])
    batch.server.backend.init_forward_metadata(batch.metadata)
    batch.server.tables.req_to_token.zero_()
    batch.server.pool.full_to_swa_index_mapping.zero_()
    for index, mask in enumerate(({}, {"sliding_window": 16})):
        found, expected = batch.call(index).double(), batch.expected(index, **mask)
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


# -- HK breaks: the parent computes, over the pool as HK leaves it


def broken_pool(server: Server, patch: pytest.MonkeyPatch) -> None:
    server.backend.hk.cache._known.clear()
    patch.setattr("hk_sglang.attention.pools.read_pool", lambda *_, **__: 1 / 0)


def broken_layer(server: Server, patch: pytest.MonkeyPatch) -> None:
    """Make HK fail on a layer: the model did not show it at the start, and it cannot be judged."""
    server.backend.hk._layers.clear()
    patch.delattr(server.model.layers[0], "use_irope")


def broken_plan(server: Server, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hk_sglang.attention.batch.page_slots", lambda *_: torch.zeros(1) + "a slot")


@pytest.mark.parametrize(
    ("damage", "error", "tokens"),
    [
        (broken_pool, "ZeroDivisionError: division by zero", PREFILL),
        (broken_layer, "AttributeError", PREFILL),
        (broken_plan, "TypeError", PREFILL + 2),
    ],
)
def test_an_error(
    counters: RouteCounters,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    damage: Any,
    error: str,
    tokens: int,
) -> None:
    server = Server()
    damage(server, monkeypatch)
    Batch(server, MIXED).check()
    (why,) = counters.fallbacks
    assert why.startswith(f"HK failed: {error}")
    fell_back(counters, why, tokens)
    assert routes.verdict("attention").why == why
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
