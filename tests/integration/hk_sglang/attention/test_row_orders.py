"""Rows in every order: the prompts' are HK's, those that decode the parent's, in one step.

The parent is SGLang's real torch_native; the expectation is the reference over keys that were never
in a pool, and for the parent's rows also what it computes of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import pytest
import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

from hk_backend.engine.rows import RowSplit, split_rows
from hk_backend.routing.routes import RouteCounters, Tally, routes
from tests.integration.hk_sglang.attention.batch import EXTEND, Batch, Server
from tests.integration.shared.attention.expected import check_rows
from tests.integration.shared.attention.rows import (
    DECODE,
    FRESH,
    FRESH_ONE,
    SHORT_EXTEND,
    Row,
    orders,
    prefill_tokens,
)
from tests.integration.shared.attention.split import Known

ORDERS = orders((DECODE, EXTEND, FRESH, FRESH_ONE, SHORT_EXTEND), longest=6, sampled=60)
READABLE = Known(says=False, drafts=0)
"""SGLang's batches of prompts have no row that verifies drafts, and do not say what a row is."""
MODES = ["EXTEND", "MIXED"]


class Calls:
    """The rows of each call of the parent, by their query lengths."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows: list[list[int]] = []
        original = TorchNativeAttnBackend.forward_extend

        @wraps(original)  # the plugin looks at its parameters
        def forward_extend(backend: Any, *args: Any, **kwargs: Any) -> Any:
            self.rows.append(list(args[4].extend_seq_lens_cpu))
            assert sum(self.rows[-1]) == len(args[0])
            return original(backend, *args, **kwargs)

        patch.setattr(TorchNativeAttnBackend, "forward_extend", forward_extend)
        as_sglangs_own(patch)


def as_sglangs_own(patch: pytest.MonkeyPatch) -> None:
    """Let HK take methods of these tests for SGLang's, and not for another plugin's."""
    patch.setattr("hk_sglang.attention.backend.foreign_method", lambda *_: "")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def check(server: Server, rows: Sequence[Row], mode: str, calls: Calls) -> None:
    """Result, pool, who computed which rows, and counters."""
    routes.reset()
    calls.rows.clear()
    Batch(server, rows, mode).check()
    mine = READABLE.hks(rows)
    left = [row.query for row, its in zip(rows, mine, strict=True) if not its]
    assert calls.rows == ([left] if left else [])
    found = routes.counters("attention")
    tokens = prefill_tokens([row for row, its in zip(rows, mine, strict=True) if its])
    assert found.served == Tally(int(any(mine)), tokens)
    assert tokens == prefill_tokens(rows)
    assert not found.fallbacks


@pytest.mark.parametrize("mode", MODES)
def test_every_order_of_rows(counters: RouteCounters, calls: Calls, mode: str) -> None:
    server = Server()
    for rows in ORDERS:
        check(server, rows, mode, calls)


@pytest.mark.parametrize("kind", ["mine", "theirs"])
@pytest.mark.parametrize("rows", [(DECODE, FRESH, EXTEND), (FRESH, DECODE, EXTEND)], ids=str)
def test_a_row_of_the_other_ones_is_seen(
    counters: RouteCounters,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    rows: tuple[Row, ...],
    kind: str,
) -> None:
    """The check itself: a decode row that HK takes, or a prompt that it leaves, fails it."""

    def broken(*arguments: Any, **named: Any) -> RowSplit:
        split = split_rows(*arguments, **named)
        mine, theirs = split.mine.copy(), split.theirs.copy()
        moved = int((theirs if kind == "mine" else mine).argmax())
        mine[moved], theirs[moved] = kind == "mine", kind == "theirs"
        return replace(split, mine=mine, theirs=theirs)

    server = Server()
    check(server, rows, "MIXED", calls)
    monkeypatch.setattr("hk_sglang.attention.batch.split_rows", broken)
    with pytest.raises(AssertionError):
        check(server, rows, "MIXED", calls)


@pytest.mark.parametrize("rows", [(DECODE, FRESH), (FRESH, DECODE, EXTEND, Row(1, 20))], ids=str)
def test_the_parents_rows_are_as_it_computes_them_alone(
    counters: RouteCounters, rows: tuple[Row, ...]
) -> None:
    """To the bit: of a batch of these rows and no others."""
    server = Server()
    mixed = Batch(server, rows, "MIXED")
    output = mixed.run()[0].split([row.query for row in rows])
    theirs = [i for i, row in enumerate(rows) if row.query == 1]
    alone = Batch(server, [rows[i] for i in theirs], "MIXED")
    for name in ("queries", "keys", "values"):
        setattr(alone, name, [[getattr(mixed, name)[0][i] for i in theirs]])
    alone._write(0, [row.cached for row in alone.rows])
    server.backend.__class__ = type(server.backend).__base__
    assert torch.equal(alone.run()[0], torch.cat([output[i] for i in theirs]))
    assert counters.served.calls == 1


@dataclass
class Lengths:
    """Metadata as triton's and aiter's: a part of a buffer that every batch fills anew."""

    lengths: torch.Tensor


class Buffered(TorchNativeAttnBackend):
    """A parent whose metadata of one batch lie where those of the one before did."""

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
    """Its metadata of its rows and of the whole batch last side by side, in any layer."""
    from hk_sglang.attention.install import register_attention

    from tests.integration.hk_sglang.attention import batch as batch_module

    as_sglangs_own(monkeypatch)
    monkeypatch.setitem(batch_module.ATTENTION_BACKENDS, "triton", Buffered)
    assert register_attention() == ""
    if broken:
        monkeypatch.setattr("hk_sglang.attention.parent_rows._copied", lambda metadata: metadata)
    server = Server([{}, {"attn_type": encoder_only()}, {}], name="triton")
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


def encoder_only() -> Any:
    from sglang.srt.layers.radix_attention import AttentionType

    return AttentionType.ENCODER_ONLY


def test_fresh_rows_beside_an_fp8_pool(
    counters: RouteCounters, stand_ins: None, environment: Callable[..., None]
) -> None:
    """By the GPU's kernels, from keys as they were projected, as triton reads them; in a batch with
    an extend from the pool, as its own."""
    environment(HK_BACKEND="attention", HK_DEVICE="emulated:gfx950")
    server = Server(dtype=torch.bfloat16, kv_dtype=torch.float8_e4m3fn, name="triton")
    rows = [FRESH, DECODE, FRESH]
    batch = Batch(server, rows, "MIXED")
    (found,) = batch.run()
    parts = found.split([row.query for row in rows])
    made = list(batch.made())
    for i in (0, 2):
        check_rows(parts[i], [made[i]])
    assert counters.served == Tally(1, 2 * FRESH.query)
    Batch(server, [*rows, EXTEND], "MIXED").run()
    assert counters.served == Tally(2, 4 * FRESH.query + EXTEND.query)
    assert not counters.fallbacks
