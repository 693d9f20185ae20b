"""What HK computes of SGLang's prefill: the reference's numbers, from the pool, counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, PREFILL, Batch, Server
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import DECODE, FRESH, FRESH_ONE, Row

BATCHES = {
    "fresh": [FRESH, Row(17)],
    "extend": [EXTEND, Row(3, 32)],
    "mixed": MIXED,
    "a long one": [Row(40, 100), FRESH_ONE],
    "one token of a fresh request": [FRESH_ONE, FRESH],
}


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES)
def test_pages(counters: RouteCounters, page_size: int, rows: list[Row]) -> None:
    """Every page size of the plain layout, with keys of other requests all around."""
    server = Server(page_size=page_size)
    cached = [row if row.cached % page_size == 0 else Row(row.query, 64) for row in rows]
    Batch(server, rows if page_size == 1 else cached).check()
    tokens = sum(row.query for row in rows if row.query > 1)
    assert counters.served == Tally(1, tokens)
    assert not counters.fallbacks


@pytest.mark.parametrize("mode", ["EXTEND", "MIXED"])
def test_modes(counters: RouteCounters, mode: str) -> None:
    Batch(Server(), MIXED, mode).check()
    assert counters.served == Tally(1, PREFILL)


def test_the_parents_class_and_state_stay(counters: RouteCounters) -> None:
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    server = Server()
    assert isinstance(server.backend, TorchNativeAttnBackend)
    assert type(server.backend).__name__ == "HKTorchNativeAttnBackend"
    assert server.backend.token_to_kv_pool is server.pool
    assert server.backend.support_triton() is False


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(counters: RouteCounters, dtype: torch.dtype) -> None:
    for rows in (MIXED, [FRESH]):
        Batch(Server(dtype=dtype), rows).check()
    assert counters.served.calls == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_small_fault_shows(counters: RouteCounters, dtype: torch.dtype) -> None:
    """Outputs 2% too large are past the bounds that the tests here have."""
    batch = Batch(Server(dtype=dtype), MIXED)
    (found,) = batch.run()
    check_rows(found, batch.made())
    with pytest.raises(AssertionError, match="out of bounds"):
        check_rows(1.02 * found, batch.made())


def test_the_parent_agrees(counters: RouteCounters) -> None:
    """The stock backend's output on the same batch: same shape, same numbers."""
    server = Server()
    batch = Batch(server, MIXED)
    (found,) = batch.run()
    server.backend.__class__ = type(server.backend).__base__
    (stock,) = batch.run()
    assert counters.served.calls == 1
    torch.testing.assert_close(found, stock, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("window", [1, 8, 40])
def test_sliding_window(counters: RouteCounters, window: int) -> None:
    """SGLang's number of keys behind the query is one less than HK's window."""
    server = Server([{"sliding_window_size": window - 1 or 1}])
    window = (window - 1 or 1) + 1
    Batch(server, MIXED).check(sliding_window=window)
    batch = Batch(server, MIXED)
    (found,) = batch.run()
    server.backend.__class__ = type(server.backend).__base__
    (stock,) = batch.run()
    torch.testing.assert_close(found, stock, rtol=2e-5, atol=2e-5)
    assert counters.served.calls == 2


def test_soft_cap(counters: RouteCounters, caplog: Any) -> None:
    """Not in torch_native, which ignores it, and so in decode; in HK, which says so."""
    Batch(Server(), MIXED).check()
    assert "logit cap" not in caplog.text
    Batch(Server([{"logit_cap": 3.0}]), [EXTEND, FRESH]).check(logits_soft_cap=3.0)
    assert "torch_native leaves out the model's logit cap, in decode too" in caplog.text
    assert counters.served.calls == 2


def test_sinks(counters: RouteCounters) -> None:
    """As GPT-OSS hands them over, in bfloat16 beside a float32 model."""
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.bfloat16)
    batch = Batch(Server(), [EXTEND, FRESH])
    (found,) = batch.run(sinks=sinks)
    expected = batch.expected(sinks=sinks.float())
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)
    assert counters.served.calls == 1


def test_rows_of_padding(counters: RouteCounters) -> None:
    """Rows that no request owns are zero; their keys go where SGLang sends them, to slot 0."""
    batch = Batch(Server(), MIXED)
    nobodys = torch.full((3, 4, 64), torch.nan)
    query = torch.cat([*batch.queries[0], nobodys]).flatten(1)
    key, value = (torch.cat([*t, nobodys[:, :2]]) for t in batch._new(0)[1:])
    slots = batch.metadata.out_cache_loc
    batch.metadata.out_cache_loc = torch.cat([slots, torch.zeros(3, dtype=slots.dtype)])
    (found,) = batch.run(q=query, k=key, v=value)
    expected = batch.expected()
    torch.testing.assert_close(found[: batch.num_tokens].double(), expected, rtol=2e-5, atol=2e-5)
    assert not found[batch.num_tokens :].any()
    assert counters.served == Tally(1, PREFILL)


def test_keys_that_are_in_the_pool_already(counters: RouteCounters) -> None:
    """`save_kv_cache=False`, as after a fused rotation: HK writes nothing."""
    batch = Batch(Server(), MIXED)
    batch._write(0, [row.length for row in batch.rows])
    before = [t.clone() for t in batch.server.pool.get_kv_buffer(0)]
    (found,) = batch.run(save_kv_cache=False)
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    assert all(map(torch.equal, before, batch.server.pool.get_kv_buffer(0)))
    assert counters.served.calls == 1


def test_decode_is_the_parents(counters: RouteCounters) -> None:
    """And is not counted: it is no prefill."""
    batch = Batch(Server(), [DECODE, Row(1, 20)], "DECODE")
    (found,) = batch.run()
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    assert not counters.served.calls
    assert not counters.fallbacks


def test_prompts_of_one_token_are_the_parents(counters: RouteCounters) -> None:
    (found,) = (batch := Batch(Server(), [FRESH_ONE, Row(1, 16)])).run()
    torch.testing.assert_close(found.double(), batch.expected(), rtol=2e-5, atol=2e-5)
    assert not counters.served.calls
    assert not counters.fallbacks


def test_a_batch_after_another(counters: RouteCounters) -> None:
    """Nothing of a batch is used for the next one, in whatever order they come."""
    server = Server()
    for seed, rows in enumerate([[FRESH], MIXED, [Row(1, 30)], [EXTEND], [FRESH, FRESH]]):
        mode = "DECODE" if rows == [Row(1, 30)] else "EXTEND"
        Batch(server, rows, mode, seed).check()
    assert counters.served.calls == 4


def test_page_tables_are_read_with_the_metadata(counters: RouteCounters) -> None:
    """SGLang's scheduler may change them while the layers run."""
    batch = Batch(Server([{}, {"sliding_window_size": 15}], windows=(1,)), [EXTEND, FRESH])
    batch.server.backend.init_forward_metadata(batch.metadata)
    expected = batch.expected(0), batch.expected(1, sliding_window=16)
    batch.server.tables.req_to_token.zero_()
    batch.server.pool.full_to_swa_index_mapping.zero_()
    for index in range(2):
        found = batch.call(index).double()
        torch.testing.assert_close(found, expected[index], rtol=2e-5, atol=2e-5)
