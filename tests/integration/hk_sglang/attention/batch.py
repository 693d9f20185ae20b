"""A batch through a real backend, pool and layers of SGLang, without an engine.

The batch does what a scheduler and a model do around attention. It writes the keys of cached tokens
with the pool's own writer, makes metadata, then calls each layer. The expectation is the reference,
row by row, over keys that were never in a pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_sglang.attention.layers import layers_of
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.runtime_context import get_context, get_server_args
from sglang.srt.speculative.eagle_info import EagleVerifyInput

from tests.integration.shared.attention.expected import RowTensors, check_rows, expected_rows
from tests.integration.shared.attention.rows import DECODE, FRESH, Row, prefill_tokens

NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE = 4, 2, 64
TOKENS, REQUESTS, LONGEST = 1024, 8, 256
UNWRITTEN, FP8_NAN = 1e4, 0x7F
"""Values in slots of no row, so that reading such a slot shows."""


EXTEND = Row(6, 48)
MIXED = [EXTEND, FRESH, DECODE, DECODE]
"""A batch with every kind of request, in the order in which HK serves it."""
PREFILL = prefill_tokens(MIXED)


@dataclass
class Server:
    """The part of SGLang's ModelRunner that a backend and its wrapper read; one layer per `layers`.

    `layers`: further arguments of each `RadixAttention`. `windows`: indices of layers that keep
    their keys in a second pool with slots of its own, as hybrid models do. `drafts`: those of a
    row that the server verifies.
    """

    layers: Sequence[dict[str, Any]] = ({},)
    page_size: int = 16
    dtype: torch.dtype = torch.float32
    kv_dtype: torch.dtype | None = None
    windows: tuple[int, ...] = ()
    name: str = "torch_native"
    changes: dict[str, Any] = field(default_factory=dict)
    head_size: int = HEAD_SIZE
    num_heads: int = NUM_HEADS
    num_kv_heads: int = NUM_KV_HEADS
    drafts: int = 0

    def __post_init__(self) -> None:
        self.model = self._model()
        self.attention: list[Any] = layers_of(self.model)
        self.pool = self._pool()
        self.tables = ReqToTokenPool(REQUESTS, LONGEST, "cpu", enable_memory_saver=False)
        self.runner = SimpleNamespace(**{**self._facts(), **self.changes})
        flags = {"speculative_num_draft_tokens": 1 + self.drafts} if self.drafts else None
        context = get_context().override_server_args(device="cpu", **flags) if flags else None
        with context or nullcontext():
            self.backend: Any = ATTENTION_BACKENDS[self.name](self.runner)

    def _model(self) -> Any:
        model: Any = torch.nn.Module()
        model.layers = torch.nn.ModuleList(
            RadixAttention(
                self.num_heads,
                self.head_size,
                self.head_size**-0.5,
                self.num_kv_heads,
                layer_id=index,
                **arguments,
            )
            for index, arguments in enumerate(self.layers)
        )
        return model

    def _facts(self) -> dict[str, Any]:
        """Attributes of the runner that backends read."""
        return {
            "device": "cpu",
            "dtype": self.dtype,
            "page_size": self.page_size,
            "model": self.model,
            "token_to_kv_pool": self.pool,
            "req_to_token_pool": self.tables,
            "kv_cache_dtype": self.pool.dtype,
            "kv_index_translator": SimpleNamespace(is_translating=False),
            "prefill_attention_backend_str": self.name,
            "is_draft_worker": False,
            "use_mla_backend": False,
            "server_args": get_server_args(),
        }

    def _pool(self) -> Any:
        shared = {
            "page_size": self.page_size,
            "dtype": self.kv_dtype or self.dtype,
            "head_num": self.num_kv_heads,
            "head_dim": self.head_size,
            "device": "cpu",
            "enable_memory_saver": False,
        }
        if not self.windows:
            return MHATokenToKVPool(TOKENS, layer_num=len(self.attention), **shared)
        full = [index for index in range(len(self.attention)) if index not in self.windows]
        pool = SWAKVPool(
            TOKENS,
            TOKENS // 2,
            swa_attention_layer_ids=list(self.windows),
            full_attention_layer_ids=full,
            **shared,
        )
        pool.register_mapping(torch.zeros(TOKENS + self.page_size + 1, dtype=torch.int64))
        return pool

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let the parent compute alone, without HK."""
        wrapper = type(self.backend)
        self.backend.__class__ = wrapper.__base__
        try:
            yield
        finally:
            self.backend.__class__ = wrapper

    def parts(self) -> list[Any]:
        """The pools that hold tensors."""
        return [self.pool.full_kv_pool, self.pool.swa_kv_pool] if self.windows else [self.pool]


def is_wrapped(backend: Any) -> bool:
    """Whether HK wraps this backend."""
    return hasattr(backend, "hk")


class Batch:
    """Random queries, keys and values of `rows` for each layer; the pool holds the cached ones.

    `template`: rows with as many cached tokens share them, and their pages. Rows that verify
    drafts, which are chains, come in batches of their own (TARGET_VERIFY).
    """

    def __init__(
        self,
        server: Server,
        rows: Sequence[Row],
        mode: str = "EXTEND",
        seed: int = 0,
        template: int = 0,
    ) -> None:
        self.server, self.rows = server, list(rows)
        self.sharing = [i for i, row in enumerate(rows) if template and row.cached == template]
        generator = torch.Generator().manual_seed(seed)

        def random(heads: int, length: int) -> torch.Tensor:
            made = torch.randn(length, heads, server.head_size, generator=generator)
            return made.to(server.dtype)

        heads, kv_heads, layers = server.num_heads, server.num_kv_heads, server.attention
        self.queries = [[random(heads, r.query) for r in rows] for _ in layers]
        self.keys = [[random(kv_heads, r.length) for r in rows] for _ in layers]
        self.values = [[random(kv_heads, r.length) for r in rows] for _ in layers]
        for made in (*self.keys, *self.values):
            for i in self.sharing[1:]:
                made[i][:template] = made[self.sharing[0]][:template]
        self.num_tokens = sum(row.query for row in rows)
        self._allocate(generator)
        self.metadata = self._metadata(ForwardMode[mode])
        for index in range(len(server.attention)):
            self._write(index, [row.cached for row in rows])

    def _allocate(self, generator: torch.Generator) -> None:
        """Give each row pages in random order, none of them page 0, and others in window pools."""
        server, size = self.server, self.server.page_size
        for part in server.parts():
            for buffer in (*part.k_buffer, *part.v_buffer):
                buffer.fill_(FP8_NAN if buffer.dtype == torch.uint8 else UNWRITTEN)
        self.requests = torch.randperm(REQUESTS, generator=generator)[: len(self.rows)]
        pages = iter(torch.randperm(TOKENS // size, generator=generator).add(1).tolist())
        window_pages = iter(torch.randperm(TOKENS // 2 // size, generator=generator).add(1))
        table = server.tables.req_to_token
        for i, (row, request) in enumerate(zip(self.rows, self.requests, strict=True)):
            first = self.sharing[0] if i in self.sharing else i
            shared = row.cached if first != i else 0
            table[request, :shared] = table[self.requests[first], :shared]
            for begin in range(shared, row.length, size):
                tokens = torch.arange(min(size, row.length - begin))
                slots = next(pages) * size + tokens
                table[request, begin : begin + len(tokens)] = slots.to(table.dtype)
                if server.windows:
                    own = next(window_pages) * size + tokens
                    server.pool.full_to_swa_index_mapping[slots] = own

    def slots(self, index: int, begin: int, end: int) -> torch.Tensor:
        return self.server.tables.req_to_token[self.requests[index], begin:end].long()

    def _write(self, index: int, lengths: Sequence[int]) -> None:
        """Write the first `lengths` keys of each row, with the pool's own writer, shared ones once.

        Kernels that write the same slot twice race.
        """
        if not sum(lengths):
            return
        pool = self.server.pool
        begins = [row.cached if i in self.sharing[1:] else 0 for i, row in enumerate(self.rows)]
        parts = list(zip(begins, lengths, strict=True))
        slots = torch.cat([self.slots(i, *part) for i, part in enumerate(parts)])
        window = pool.translate_loc_from_full_to_swa(slots) if self.server.windows else None
        key, value = (
            torch.cat([t[begin:end] for t, (begin, end) in zip(tensors[index], parts, strict=True)])
            for tensors in (self.keys, self.values)
        )
        layer = self.server.attention[index]
        scales = layer.k_scale, layer.v_scale
        pool.set_kv_buffer(layer, KVWriteLoc(slots, window), key, value, *scales)

    def _metadata(self, mode: ForwardMode) -> ForwardBatch:
        rows = self.rows
        slots = [self.slots(i, row.cached, row.length) for i, row in enumerate(rows)]
        queries, cached = [row.query for row in rows], [row.cached for row in rows]
        lengths = torch.tensor([row.length for row in rows])
        starts = torch.tensor([sum(queries[:i]) for i in range(len(rows))], dtype=torch.int32)
        if all(row.verifies for row in rows):
            return self._verification(torch.cat(slots))
        return ForwardBatch(
            forward_mode=mode,
            batch_size=len(rows),
            input_ids=torch.zeros(self.num_tokens, dtype=torch.int64),
            req_pool_indices=self.requests,
            seq_lens=lengths,
            seq_lens_cpu=lengths,
            seq_lens_sum=int(lengths.sum()),
            out_cache_loc=torch.cat(slots),
            extend_num_tokens=self.num_tokens,
            extend_seq_lens=torch.tensor(queries, dtype=torch.int32),
            extend_prefix_lens=torch.tensor(cached, dtype=torch.int32),
            extend_start_loc=starts,
            extend_seq_lens_cpu=queries,
            extend_prefix_lens_cpu=cached,
        )

    def _verification(self, slots: torch.Tensor) -> ForwardBatch:
        """A batch as SGLang's workers make it: lengths are those before the drafts."""
        [tokens] = {row.query for row in self.rows}
        lengths = torch.tensor([row.cached for row in self.rows])
        return ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=len(self.rows),
            input_ids=torch.zeros(self.num_tokens, dtype=torch.int64),
            req_pool_indices=self.requests,
            seq_lens=lengths,
            seq_lens_cpu=lengths,
            seq_lens_sum=int(lengths.sum()),
            out_cache_loc=slots,
            spec_info=drafts_of(tokens),
        )

    def call(self, index: int = 0, **changes: Any) -> torch.Tensor:
        """Call one layer's forward as RadixAttention does: `[tokens, heads, channels]`."""
        server = self.server
        q, k, v = (torch.cat(t) for t in self._new(index))
        facts = {"q": q.flatten(1), "k": k, "v": v, "forward_batch": self.metadata, **changes}
        layer = server.attention[index]
        with pytest.MonkeyPatch.context() as patch:
            let_it_verify(patch)
            out = server.backend.forward(
                facts.pop("q"),
                facts.pop("k"),
                facts.pop("v"),
                layer,
                facts.pop("forward_batch"),
                facts.pop("save_kv_cache", True),
                **facts,
            )
        return out.view(-1, server.num_heads, server.head_size)

    def _new(self, index: int) -> list[list[torch.Tensor]]:
        """Queries, keys and values of the batch's own tokens."""
        new = [
            [tensor[row.cached :] for tensor, row in zip(tensors[index], self.rows, strict=True)]
            for tensors in (self.keys, self.values)
        ]
        return [self.queries[index], *new]

    def run(self, **changes: Any) -> list[torch.Tensor]:
        """Make the metadata, then call every layer."""
        self.server.backend.init_forward_metadata(self.metadata)
        return [self.call(index, **changes) for index in range(len(self.server.attention))]

    def made(self, index: int = 0) -> Iterator[RowTensors]:
        """Queries, keys and values of each row, as they were made."""
        return zip(self.queries[index], self.keys[index], self.values[index], strict=True)

    def expected(self, index: int = 0, **mask: Any) -> torch.Tensor:
        """The reference's result, row by row, over keys as they were made."""
        return expected_rows(self.made(index), **mask)[0]

    def check(self, **mask: Any) -> None:
        """Run all layers; each output equals the reference's, and the pool holds every key."""
        for index, found in enumerate(self.run()):
            check_rows(found, self.made(index), **mask)
            self._check_pool(index)

    def _check_pool(self, index: int) -> None:
        """Hold that new tokens lie in the pool, where the parent's decode looks for them.

        Page 0 must be as it was.
        """
        pool = self.server.pool
        slots = torch.cat([self.slots(i, 0, row.length) for i, row in enumerate(self.rows)])
        if index in self.server.windows:
            slots = pool.translate_loc_from_full_to_swa(slots)
        part = self.server.parts()[1 if index in self.server.windows else 0]
        if part.kv_cache_layout != "nhd" or part.store_dtype != part.dtype:
            return
        for tensors, buffer in zip(
            (self.keys, self.values), pool.get_kv_buffer(index), strict=True
        ):
            assert torch.equal(buffer[slots], torch.cat(tensors[index]).to(part.dtype))
            assert (buffer[0] == UNWRITTEN).all()


def drafts_of(tokens: int, topk: int = 1) -> EagleVerifyInput:
    """The drafts of a batch, `tokens` with the one before them, in each row: a chain or a tree."""
    return EagleVerifyInput.create_idle_input(topk, tokens - 1, tokens, "cpu")


def let_it_verify(patch: pytest.MonkeyPatch) -> None:
    """Let `torch_native`, which cannot verify drafts, compute them as prompts' next tokens."""
    extend = TorchNativeAttnBackend.forward_extend

    @wraps(extend)  # the plugin looks at its parameters
    def forward_extend(
        backend: Any, q: Any, k: Any, v: Any, layer: Any, batch: Any, *more: Any, **named: Any
    ) -> Any:
        if batch.forward_mode.is_target_verify() and batch.extend_prefix_lens is None:
            batch, cached = copy(batch), batch.seq_lens
            tokens = torch.full_like(cached, batch.spec_info.draft_token_num)
            batch.extend_prefix_lens, batch.extend_seq_lens = cached, tokens
            batch.seq_lens = cached + tokens
        return extend(backend, q, k, v, layer, batch, *more, **named)

    patch.setattr(TorchNativeAttnBackend, "forward_extend", forward_extend)
