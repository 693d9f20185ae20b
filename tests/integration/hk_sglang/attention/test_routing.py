"""SGLang's prefill that HK computes from the pool: it equals the reference, and is counted.

Layers are also measured beside the parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import pytest
import torch
from hk_sglang.attention import hk_attention
from hk_sglang.attention.install import register_attention
from hk_sglang.attention.layers import layers_of
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool

from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.adapter import Environment
from tests.integration.hk_sglang.attention import batch as factories
from tests.integration.hk_sglang.attention.batch import EXTEND, MIXED, PREFILL, Batch, Server
from tests.integration.hk_sglang.attention.engine import as_sglangs_own, prompt
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import DECODE, FRESH, Row
from tests.integration.shared.evidence import Bench, assert_same_attention

TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


@pytest.mark.parametrize("window", [2, 8, 40])
def test_sliding_window(counters: RouteCounters, environment: Environment, window: int) -> None:
    """SGLang counts the keys behind the query, one less than HK's window. HK_CHECK agrees."""
    environment(HK_CHECK="1")
    server = Server([{"sliding_window_size": window - 1}])
    Batch(server, MIXED).check(sliding_window=window)
    batch = Batch(server, MIXED)
    (found,) = batch.run()
    assert counters.served.calls == counters.checked_calls == 2
    with server.alone():
        torch.testing.assert_close(found, batch.run()[0], **TOLERANCE)


def test_soft_cap(counters: RouteCounters, caplog: Any) -> None:
    """HK applies the cap. SGLang's torch_native ignores it, in decode too, and HK's log says so."""
    Batch(Server(), MIXED).check()
    assert "logit cap" not in caplog.text
    Batch(Server([{"logit_cap": 3.0}]), [EXTEND, FRESH]).check(logits_soft_cap=3.0)
    assert "torch_native leaves out the model's logit cap, in decode too" in caplog.text
    assert counters.served.calls == 2


def test_sinks(counters: RouteCounters) -> None:
    """GPT-OSS hands over its sinks in bfloat16, beside a float32 model."""
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.bfloat16)
    batch = Batch(Server(), [EXTEND, FRESH])
    (found,) = batch.run(sinks=sinks)
    check_rows(found, batch.made(), sinks=sinks.float())
    assert counters.served.calls == 1


def test_rows_of_padding(counters: RouteCounters) -> None:
    """Rows that no request owns become zero. Their keys go to slot 0, where SGLang sends them."""
    batch = Batch(Server(), MIXED)
    nobodys = torch.full((3, 4, 64), torch.nan)
    query = torch.cat([*batch.queries[0], nobodys]).flatten(1)
    key, value = (torch.cat([*t, nobodys[:, :2]]) for t in batch._new(0)[1:])
    slots = batch.metadata.out_cache_loc
    batch.metadata.out_cache_loc = torch.cat([slots, torch.zeros(3, dtype=slots.dtype)])
    (found,) = batch.run(q=query, k=key, v=value)
    check_rows(found[: batch.num_tokens], batch.made())
    assert not found[batch.num_tokens :].any()
    assert counters.served == Tally(1, PREFILL)


def test_keys_that_are_in_the_pool_already(counters: RouteCounters) -> None:
    """HK writes no keys with `save_kv_cache=False`, which a model passes after a fused rotation."""
    batch = Batch(Server(), MIXED)
    batch._write(0, [row.length for row in batch.rows])
    before = [t.clone() for t in batch.server.pool.get_kv_buffer(0)]
    (found,) = batch.run(save_kv_cache=False)
    check_rows(found, batch.made())
    assert all(map(torch.equal, before, batch.server.pool.get_kv_buffer(0)))
    assert counters.served.calls == 1


# -- rows that the parent computes


@dataclass
class Lengths:
    """Metadata like those of triton and aiter: a part of a buffer that every batch fills anew."""

    lengths: torch.Tensor


class Buffered(TorchNativeAttnBackend):
    """A parent that puts one batch's metadata where those of the batch before were."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.buffer = torch.zeros(8, dtype=torch.int64)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        super().init_forward_metadata(forward_batch)
        self.buffer[: forward_batch.batch_size] = forward_batch.seq_lens
        self.forward_metadata = Lengths(self.buffer[: forward_batch.batch_size])

    @wraps(TorchNativeAttnBackend.forward_extend)
    def forward_extend(self, *args: Any, **kwargs: Any) -> Any:
        assert torch.equal(self.forward_metadata.lengths, args[4].seq_lens)
        return super().forward_extend(*args, **kwargs)


@pytest.mark.parametrize("broken", [False, True])
def test_a_parent_that_fills_its_buffers_again(
    counters: RouteCounters, stand_ins: None, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """The parent's metadata of its own rows and of the whole batch last, in any layer."""
    as_sglangs_own(monkeypatch)
    monkeypatch.setitem(factories.ATTENTION_BACKENDS, "triton", Buffered)
    assert register_attention() == ""
    if broken:
        monkeypatch.setattr("hk_sglang.attention.parent_rows._copied", lambda metadata: metadata)
    server = Server([{}, {"attn_type": AttentionType.ENCODER_ONLY}, {}], name="triton")
    batch = Batch(server, [FRESH, DECODE, EXTEND], "MIXED")
    server.backend.init_forward_metadata(batch.metadata)
    if broken:
        with pytest.raises((AssertionError, RuntimeError)):
            batch.call(0)
        return
    for index in (0, 2):
        check_rows(batch.call(index), batch.made(index))
    batch.call(1)
    assert counters.served.calls == 2


# -- measured beside the parent, in the server's own pool, which is left as it was


KIND = "attention float32, 4/2 heads of 64, causal, pages of 16"
WINDOW: dict[str, Any] = {"sliding_window_size": 20}
MASK: dict[str, Any] = {"sliding_window": 21}


@pytest.mark.parametrize(
    ("facts", "mask"),
    [
        ({"layers": (WINDOW,)}, MASK),
        ({"layers": (WINDOW,), "windows": (0,)}, MASK),
        ({"page_size": 1}, {}),
        ({"page_size": 64}, {}),
    ],
    ids=str,
)
def test_both_sides_compute_a_prompt(
    counters: RouteCounters, bench: Bench, facts: dict[str, Any], mask: dict[str, Any]
) -> None:
    """The layer's keys lie in the only pool, or in the window layers' pool with its own slots."""
    server = Server(**facts)
    assert_same_attention(bench, partial(prompt, server), **mask)
    assert not server.tables.req_to_token.any()
    if server.windows:
        assert not server.pool.full_to_swa_index_mapping.any()


def test_each_kind_of_layer_is_decided_by_itself(counters: RouteCounters, bench: Bench) -> None:
    """Each kind of layer is measured once and decided by itself.

    Here layers of one kind are the parent's in a short step and HK's in a long one.
    """
    bench.ours = lambda rows: 4.0 if rows < 128 and len(bench.rows) == 1 else 1.0
    server = Server(layers=({}, WINDOW, {}))
    assert len(bench.rows) == 2
    for rows, served in (([FRESH], 1), ([Row(128)], 4), ([FRESH], 5)):
        batch = Batch(server, rows)
        full, window, again = batch.run()
        check_rows(full, batch.made(0))
        check_rows(window, batch.made(1), **MASK)
        check_rows(again, batch.made(2))
        assert counters.served.calls == served
    [(why, tally)] = counters.fallbacks.items()
    assert why.startswith(f"faster without HK: {KIND}: 32 rows: ")
    assert tally == Tally(4, 4 * FRESH.query)


def test_nothing_is_measured_beside_a_request(
    counters: RouteCounters, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A contest would take a row of the page table that belongs to a request."""
    monkeypatch.setattr(ReqToTokenPool, "available_size", lambda self: self.size - 1)
    Batch(Server(), [FRESH]).check()
    assert not bench.rows
    [why] = counters.fallbacks
    assert why == f"{KIND}: not measured: RuntimeError: requests run already"


def test_layers_that_the_model_did_not_have(
    counters: RouteCounters, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK measures no layer in the middle of a batch. It serves a layer of a known kind at once."""
    with monkeypatch.context() as patch:
        patch.setattr(hk_attention, "layers_of", lambda model: layers_of(model)[:1])
        server = Server(layers=({}, {}, WINDOW))
    Batch(server, [FRESH]).run()
    assert len(bench.rows) == 1
    assert counters.served == Tally(2, 2 * FRESH.query)
    [why] = counters.fallbacks
    assert why.endswith("the model did not have the layer when it was loaded")
