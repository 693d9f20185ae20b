"""A batch through builder and implementation of a real vLLM backend, without an engine.

The batch does what an engine's runner does around one attention layer. It writes the keys of cached
tokens with the layer's own writer, builds metadata from the runner's common metadata, writes the
new keys and calls `forward`. The expectation is the reference, row by row, over keys that were
never in a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from tests.integration.shared.attention.expected import check_rows, expected_rows
from tests.integration.shared.attention.rows import DECODE, EXTEND, FRESH, Row, prefill_tokens

BLOCK_SIZE = 32
MAX_BLOCKS = 6
NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE = 4, 2, 64


@dataclass(frozen=True)
class Shape:
    """Heads of a layer, and the number of tokens in a page of its cache."""

    num_heads: int = NUM_HEADS
    num_kv_heads: int = NUM_KV_HEADS
    head_size: int = HEAD_SIZE
    block_size: int = BLOCK_SIZE


SHAPE = Shape()
LAYER_NAME = "model.layers.0.attn"
UNWRITTEN = 1e4
"""The value in cache slots of no row: reading it shows. NaN would show in vLLM's own decode."""

MIXED = [DECODE, EXTEND, FRESH]
"""A batch with every kind of request, in the order in which HK serves it."""
PREFILL = prefill_tokens(MIXED)


def vllm_config(dtype: torch.dtype = torch.float32, shape: Shape = SHAPE, **parallel: Any) -> Any:
    """The part of a VllmConfig that one attention layer and its builder read."""
    from vllm.config import VllmConfig

    config = VllmConfig()
    config.cache_config.block_size = shape.block_size
    for name, value in parallel.items():
        object.__setattr__(config.parallel_config, name, value)
    model = SimpleNamespace(
        dtype=dtype,
        is_mm_prefix_lm=False,
        rswa_window=None,
        compute_hash=lambda: "model",
        multimodal_config=None,
        get_num_attention_heads=lambda parallel: shape.num_heads,
        get_num_kv_heads=lambda parallel: shape.num_kv_heads,
        get_head_size=lambda: shape.head_size,
    )
    object.__setattr__(config, "model_config", model)
    return config


def with_drafts(config: Any, drafts: int, method: str = "eagle", **more: Any) -> Any:
    """Turn `config` into that of a speculating server, with so many drafts per step."""
    from vllm.config import SpeculativeConfig

    speculative = SimpleNamespace(
        num_speculative_tokens=drafts, method=method, parallel_drafting=False
    )
    speculative.use_eagle = lambda: SpeculativeConfig.use_eagle(speculative)
    vars(speculative).update(more)
    object.__setattr__(config, "speculative_config", speculative)
    return config


@contextmanager
def constructing(config: Any, dtype: torch.dtype) -> Iterator[None]:
    """Set the state in which vLLM constructs layers."""
    from vllm.config import set_current_vllm_config

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with set_current_vllm_config(config):
            yield
    finally:
        torch.set_default_dtype(before)


@dataclass
class Layer:
    """One attention layer of `backend`, its builder and its cache."""

    backend: Any
    dtype: torch.dtype = torch.float32
    config: Any = None
    arguments: dict[str, Any] = field(default_factory=dict)
    num_blocks: int = 64
    unwritten: float = UNWRITTEN
    shape: Shape = SHAPE

    def __post_init__(self) -> None:
        from vllm.model_executor.layers.attention import Attention

        shape = self.shape
        self.config = self.config or vllm_config(self.dtype, shape)
        with constructing(self.config, self.dtype):
            self.module = Attention(
                shape.num_heads,
                shape.head_size,
                shape.head_size**-0.5,
                shape.num_kv_heads,
                cache_config=self.config.cache_config,
                prefix=LAYER_NAME,
                attn_backend=self.backend,
                **self.arguments,
            )
            self.impl: Any = self.module.impl
            self.builder = self.new_builder(self.backend.get_builder_cls())
        sizes = (self.num_blocks, shape.num_kv_heads, shape.block_size, 2 * shape.head_size)
        self.kv_cache = torch.empty(sizes, dtype=self.dtype)

    def new_builder(self, kind: Any, names: Sequence[str] = (LAYER_NAME,)) -> Any:
        """A builder for a group of layers like this one."""
        spec = self.module.get_kv_cache_spec(self.config)
        return kind(spec, list(names), self.config, torch.device("cpu"))


class Batch:
    """Random queries, keys and values of `rows`, their cached part already in `layer`'s cache.

    `template`: a number of tokens in whole pages. All rows that have so many cached begin with the
    same tokens, in the same pages.
    """

    def __init__(
        self,
        layer: Layer,
        rows: Sequence[Row],
        seed: int = 0,
        padding: int = 3,
        template: int = 0,
    ) -> None:
        self.layer, self.rows, shape = layer, list(rows), layer.shape
        generator = torch.Generator().manual_seed(seed)

        def random(tokens: int, heads: int) -> torch.Tensor:
            made = torch.randn(tokens, heads, shape.head_size, generator=generator)
            return made.to(layer.dtype)

        self.keys = [random(row.length, shape.num_kv_heads) for row in self.rows]
        self.values = [random(row.length, shape.num_kv_heads) for row in self.rows]
        self.queries = [random(row.query, shape.num_heads) for row in self.rows]
        self.num_tokens = sum(row.query for row in self.rows)
        blank = [random(padding, shape.num_heads), random(padding, shape.num_kv_heads)]
        # blocks in random order, without the null block
        shuffled = torch.randperm(layer.num_blocks - 1, generator=generator) + 1
        width = max(MAX_BLOCKS, *(-(-row.length // shape.block_size) for row in self.rows))
        self.block_table = shuffled[: len(self.rows) * width].view(-1, width).int()
        self._share(template)
        self.query = torch.cat([*self.queries, blank[0]])
        self.key = torch.cat([*map(self._new, self.rows, self.keys), blank[1]])
        self.value = torch.cat([*map(self._new, self.rows, self.values), blank[1]])
        self.output = torch.full_like(self.query, torch.nan)
        layer.kv_cache.fill_(layer.unwritten)
        self._write([row.cached for row in self.rows])

    def _share(self, template: int) -> None:
        pages = template // self.layer.shape.block_size
        sharing = [i for i, row in enumerate(self.rows) if row.cached >= template > 0]
        for other in sharing[1:]:
            for made in (self.keys, self.values):
                made[other][:template] = made[sharing[0]][:template]
            self.block_table[other, :pages] = self.block_table[sharing[0], :pages]

    @staticmethod
    def _new(row: Row, tensor: torch.Tensor) -> torch.Tensor:
        return tensor[row.cached :]

    def _slots(self, index: int, begin: int, end: int) -> torch.Tensor:
        positions = torch.arange(begin, end)
        size = self.layer.shape.block_size
        return self.block_table[index].long()[positions // size] * size + positions % size

    def _write(self, lengths: Sequence[int]) -> None:
        if not sum(lengths):
            return
        key = torch.cat([k[:n] for k, n in zip(self.keys, lengths, strict=True)])
        value = torch.cat([v[:n] for v, n in zip(self.values, lengths, strict=True)])
        slots = torch.cat([self._slots(i, 0, n) for i, n in enumerate(lengths)])
        rows = {slot: row for row, slot in enumerate(slots.tolist())}
        once = list(rows.values())  # requests share the slots of a template
        layer = self.layer
        layer.impl.do_kv_cache_update(
            layer.module, key[once], value[once], layer.kv_cache, slots[once]
        )

    def common_metadata(self, **changes: Any) -> Any:
        """The common metadata that the runner hands every builder."""
        from vllm.v1.attention.backend import CommonAttentionMetadata

        query_lens = torch.tensor([row.query for row in self.rows])
        starts = torch.zeros(len(self.rows) + 1, dtype=torch.int32)
        starts[1:] = query_lens.cumsum(0)
        lengths = torch.tensor([row.length for row in self.rows], dtype=torch.int32)
        slots = [self._slots(i, row.cached, row.length) for i, row in enumerate(self.rows)]
        facts = {
            "query_start_loc": starts,
            "query_start_loc_cpu": starts.clone(),
            "seq_lens": lengths,
            "seq_lens_cpu_upper_bound": lengths.clone(),
            "num_reqs": len(self.rows),
            "num_actual_tokens": self.num_tokens,
            "max_query_len": max(row.query for row in self.rows),
            "max_seq_len": max(row.length for row in self.rows),
            "block_table_tensor": self.block_table,
            "slot_mapping": torch.cat(slots),
            "is_prefilling": torch.tensor([row.prefilling for row in self.rows]),
        }
        return CommonAttentionMetadata(**{**facts, **changes})

    def build(self, **changes: Any) -> Any:
        return self.layer.builder.build(0, self.common_metadata(**changes))

    def forward(self, metadata: Any, **changes: Any) -> torch.Tensor:
        """Write the new keys, then run the layer; returns its output, padding rows included."""
        layer = self.layer
        self._write([row.length for row in self.rows])
        facts = {"key": self.key, "value": self.value, "query": self.query, **changes}
        layer.impl.forward(
            layer.module,
            facts.pop("query"),
            facts.pop("key"),
            facts.pop("value"),
            layer.kv_cache,
            metadata,
            output=self.output,
            **facts,
        )
        return self.output

    def run(self, **changes: Any) -> torch.Tensor:
        return self.forward(self.build(**changes))

    def run_and_check(self, **mask: Any) -> None:
        self.run()
        self.check(**mask)

    def expected(self, **mask: Any) -> torch.Tensor:
        """The reference's `[num_tokens, heads, size]`, row by row, over keys as made."""
        return expected_rows(zip(self.queries, self.keys, self.values, strict=True), **mask)[0]

    def check(self, **mask: Any) -> None:
        """Hold that a row's tokens have the reference's output, and that the rest is untouched."""
        rows = zip(self.queries, self.keys, self.values, strict=True)
        check_rows(self.output[: self.num_tokens], rows, **mask)
        assert self.output[self.num_tokens :].isnan().all(), "padding rows were written"
