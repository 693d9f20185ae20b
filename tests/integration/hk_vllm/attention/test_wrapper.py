"""A wrapper keeps its parent's graphs, block tables, fusions and metadata.

Metadata are built when somebody first looks at them, and only then.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from hk_vllm.attention.backend import wrap, wrapper_of
from hk_vllm.attention.cache_forms import FORMS
from hk_vllm.attention.lazy_metadata import build, is_built, lazy, metadata_class_of
from vllm.model_executor.layers.attention.chunked_local_attention import (
    create_chunked_local_attention_backend,
)
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadataBuilder
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadataBuilder,
)
from vllm.v1.attention.backends.utils import create_fast_prefill_custom_backend

from hk_backend.routing.routes import RouteCounters
from hk_backend.terms.verdict import refused
from tests.integration.hk_vllm.attention.batch import BLOCK_SIZE, MIXED, PREFILL, Batch, Layer
from tests.integration.hk_vllm.attention.engine import HK_CPU, STOCK_CPU
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import DECODE, EXTEND, FRESH, Row


class GraphBuilder(CPUAttentionMetadataBuilder):
    """A parent like GPU backends, with graphs, exchanged block tables and its own capture."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS
    supports_update_block_table = True

    def update_block_table(self, metadata: Any, blk_table: Any, slot_mapping: Any) -> Any:
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
        metadata = self.build(0, common_attn_metadata)
        metadata.seq_lens.fill_(1)
        return metadata

    def build_for_drafting(self, common_attn_metadata: Any, draft_index: int) -> Any:
        return self.build(0, common_attn_metadata)


class FusingImpl(CPUAttentionBackendImpl):
    """A parent that takes part in every fusion."""

    supports_quant_query_input = True

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        return True

    def fused_rope_kvcache_supported(self) -> bool:
        return True

    def fused_qk_norm_rope_kvcache_supported(self) -> bool:
        return True

    def fused_qk_norm_mrope_kvcache_supported(self) -> bool:
        return True


class GpuLikeBackend(CPUAttentionBackend):
    get_builder_cls = staticmethod(lambda: GraphBuilder)
    get_impl_cls = staticmethod(lambda: FusingImpl)


@pytest.fixture
def gpu_like() -> Any:
    return wrap(GpuLikeBackend, FORMS["CPU_ATTN"], "HK_GPU_LIKE")


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ("ALWAYS", "UNIFORM_BATCH"),
        ("UNIFORM_BATCH", "UNIFORM_BATCH"),
        ("UNIFORM_SINGLE_TOKEN_DECODE", "UNIFORM_SINGLE_TOKEN_DECODE"),
        ("NEVER", "NEVER"),
    ],
)
def test_graphs_only_of_uniform_batches(
    monkeypatch: pytest.MonkeyPatch, parents: str, expected: str
) -> None:
    monkeypatch.setattr(GraphBuilder, "_cudagraph_support", AttentionCGSupport[parents])
    builder = wrap(GpuLikeBackend, FORMS["CPU_ATTN"], "HK_GRAPHS").get_builder_cls()
    assert builder._cudagraph_support is AttentionCGSupport[expected]
    assert builder.get_cudagraph_support(None, None) is AttentionCGSupport[expected]
    # some builders decide by the configuration, not by the class attribute
    never = classmethod(lambda cls, config, spec: AttentionCGSupport.NEVER)
    monkeypatch.setattr(GraphBuilder, "get_cudagraph_support", never)
    assert builder.get_cudagraph_support(None, None) is AttentionCGSupport.NEVER


@pytest.mark.parametrize(
    ("rows", "refusal"),
    [
        (MIXED, ""),
        ([EXTEND, DECODE, FRESH], ""),
        ([DECODE, FRESH, Row(1, 3)], ""),
        ([EXTEND, DECODE, FRESH], "a test"),
        ([FRESH, DECODE], "a test"),
        ([DECODE], "a test"),
    ],
    ids=str,
)
def test_new_block_tables(
    gpu_like: Any, counters: RouteCounters, rows: list[Row], refusal: str
) -> None:
    """Groups of layers share a build and exchange only the block table."""
    layer = Layer(gpu_like)
    layer.builder._hk_refusal = refusal
    batch = Batch(layer, rows)
    slots = batch.common_metadata().slot_mapping
    built = batch.build(block_table_tensor=batch.block_table.flip(0), slot_mapping=slots.flip(0))
    step = built.hk and built.hk.step
    before = step and step.block_table is not None and step.block_table.clone()
    updated = layer.builder.update_block_table(built, batch.block_table, slots)
    batch.forward(updated)
    batch.check()
    if step is None:
        assert updated.hk is built.hk
    else:
        if built.hk.reads_cache:
            kept = torch.equal(built.hk.step.block_table, before)
            assert kept, "the first group's plan must stay"
        assert counters.served.calls == 1


def test_new_block_tables_behind_an_extend_of_the_parents(gpu_like: Any) -> None:
    """If HK cannot read the cache, the parent computes some rows with several tokens."""
    layer = Layer(gpu_like)
    layer.builder._hk_cache_refusal = "an unreadable cache"
    batch = Batch(layer, [DECODE, EXTEND, FRESH])
    slots = batch.common_metadata().slot_mapping
    built = batch.build(slot_mapping=slots.flip(0))
    updated = layer.builder.update_block_table(built, batch.block_table, slots)
    parents = DECODE.query + EXTEND.query
    assert torch.equal(updated.hk.parent.slot_mapping, slots[:parents])
    assert updated.hk.parent.num_actual_tokens == parents


def test_fusions(gpu_like: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that HK refuses has the parent's fusions."""
    impl = Layer(gpu_like).impl
    assert impl.fused_rope_kvcache_supported()
    assert impl.fused_qk_norm_rope_kvcache_supported()
    assert not impl.fused_qk_norm_mrope_kvcache_supported(), "its keys reach HK unrotated"
    assert not impl.fused_output_quant_supported(None)
    assert not impl.supports_quant_query_input
    why = "hk_vllm.attention.impl.layer_verdict"
    monkeypatch.setattr(why, lambda impl, layer: refused("a reason"))
    impl = Layer(gpu_like).impl
    assert impl.fused_qk_norm_mrope_kvcache_supported()
    assert impl.fused_output_quant_supported(None)
    assert impl.supports_quant_query_input


def test_in_vllms_chunked_local_attention(counters: RouteCounters) -> None:
    """vLLM derives from HK's builder one that cuts every request into rows of one chunk."""
    rows = [Row(1, 69), Row(40, 50), Row(70), Row(64, 64)]
    outputs = []
    for backend in (HK_CPU, STOCK_CPU):
        layer = Layer(backend)
        local = create_chunked_local_attention_backend(backend, BLOCK_SIZE)
        layer.builder = layer.new_builder(local.get_builder_cls())
        batch = Batch(layer, rows)
        # only the chunk behind each token counts: attention over the whole sequence must differ
        outputs.append(batch.run()[: batch.num_tokens])
        with pytest.raises(AssertionError, match="out of bounds"):
            batch.check()
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    assert counters.served.tokens == 174
    assert not counters.fallbacks


def test_in_vllms_fast_prefill(layer: Layer, counters: RouteCounters) -> None:
    """vLLM derives from HK's builder one that rebuilds the metadata without HK's plan.

    It copies only the fields that the parent's dataclass declares.
    """
    fast = create_fast_prefill_custom_backend("Fast", layer.backend)
    layer.builder = layer.new_builder(fast.get_builder_cls())
    batch = Batch(layer, MIXED)
    batch.run_and_check()
    fell_back(counters, "metadata rebuilt by the engine", len(batch.query))


def test_a_microbatch_sees_only_its_rows(layer: Layer, counters: RouteCounters) -> None:
    """`num_reqs` and `num_actual_tokens` bound a batch whose tensors are larger."""
    batch = Batch(layer, MIXED)
    common = batch.common_metadata()
    names = "query_start_loc_cpu", "seq_lens_cpu_upper_bound"
    pad = torch.nn.functional.pad
    batch.run(**{name: pad(getattr(common, name), (0, 2), value=999) for name in names})
    batch.check()
    assert counters.served.tokens == PREFILL


# -- the parent's metadata


@dataclass
class Metadata:
    """Metadata like a parent's: fields without and with a default, which the class has too."""

    tokens: int
    blocks: int = 3

    def both(self) -> int:
        return self.tokens + self.blocks


BUILT = Metadata(1, 7)


class Made:
    """Metadata that count how often they are built."""

    def __init__(self) -> None:
        self.times = 0
        self.metadata = lazy(Metadata, self._make)
        self.metadata.hk = "plan"

    def _make(self) -> Metadata:
        self.times += 1
        return Metadata(BUILT.tokens, BUILT.blocks)


@pytest.mark.parametrize(
    "look",
    [
        lambda metadata: metadata.tokens,
        lambda metadata: metadata.blocks,
        lambda metadata: metadata.both(),
        lambda metadata: setattr(metadata, "blocks", 7),
        lambda metadata: metadata == BUILT,
        repr,
        vars,
        copy.copy,
        copy.deepcopy,
        lambda metadata: pickle.loads(pickle.dumps(metadata)),
        dataclasses.fields,
        dataclasses.replace,
        dataclasses.asdict,
        build,
    ],
)
def test_any_look_builds_it_once(look: Callable[[Any], Any]) -> None:
    made = Made()
    found = look(made.metadata)
    assert type(made.metadata) is Metadata
    assert made.metadata == BUILT
    assert made.metadata.hk == "plan"
    assert is_built(made.metadata)
    assert made.times == 1
    assert set(vars(made.metadata)) == {"tokens", "blocks", "hk"}, "what made it is let go"
    if isinstance(found, Metadata):
        assert type(found) is Metadata
        assert found == BUILT
        assert (found is made.metadata) == (look is build), "a copy is another"


def test_the_class_is_as_declared() -> None:
    class Of(AttentionMetadataBuilder[Metadata]):
        """A builder that says which metadata it builds."""

    class Inherits(Of):
        """A builder that inherits what it builds."""

    class Silent(AttentionMetadataBuilder):  # type: ignore[type-arg]
        """A builder that does not say what it builds: everything is built at once."""

    assert metadata_class_of(Of) is metadata_class_of(Inherits) is Metadata
    assert metadata_class_of(Silent) is None
    for name in ("CPU_ATTN", "ROCM_ATTN", "ROCM_AITER_FA", "TRITON_ATTN"):
        assert metadata_class_of(wrapper_of(name).get_builder_cls()) is not None


def test_the_batch_is_that_of_the_moment(layer: Layer) -> None:
    """A runner sets other fields of the same object for the next group of layers."""
    batch = Batch(layer, [EXTEND, FRESH])
    common = batch.common_metadata()
    metadata = layer.builder.build(0, common)
    common.block_table_tensor = torch.zeros_like(common.block_table_tensor)
    assert torch.equal(metadata.block_table, batch.block_table)


def test_captures_and_drafts_are_built_at_once(gpu_like: Any) -> None:
    """A capture may not wait, and a draft's steps follow each other on the device."""
    layer = Layer(gpu_like)
    common = Batch(layer, [FRESH, FRESH]).common_metadata()
    assert not is_built(layer.builder.build(0, common)), "the control"
    assert is_built(layer.builder.build_for_drafting(common, 0))
    captured = layer.builder.build_for_cudagraph_capture(common)
    assert is_built(captured)
    assert captured.seq_lens.tolist() == [1, 1], "the parent's own capture build must run"
