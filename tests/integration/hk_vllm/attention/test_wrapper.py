"""What a wrapper keeps of its parent: name, metadata, graphs, block tables, fusions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from hk_vllm.attention.backend import wrap
from hk_vllm.attention.cache_forms import FORMS
from vllm.model_executor.layers.attention.chunked_local_attention import (
    create_chunked_local_attention_backend,
)
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
    CPUAttentionMetadataBuilder,
)
from vllm.v1.attention.backends.utils import create_fast_prefill_custom_backend

from hk_backend.routing.routes import RouteCounters
from hk_backend.terms.verdict import refused
from tests.integration.hk_vllm.attention.batch import BLOCK_SIZE, LAYER_NAME, Batch, Layer
from tests.integration.shared.attention.rows import DECODE, EXTEND, FRESH, Row

ROWS = [DECODE, EXTEND, FRESH]


class GraphBuilder(CPUAttentionMetadataBuilder):
    """A parent as GPU backends are: graphs, block tables that are exchanged, its own capture."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS
    supports_update_block_table = True

    def update_block_table(self, metadata: Any, blk_table: Any, slot_mapping: Any) -> Any:
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
        metadata = self.build(0, common_attn_metadata)
        metadata.seq_lens.fill_(1)
        return metadata


class FusingImpl(CPUAttentionBackendImpl):
    """A parent that takes part in every fusion."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        alibi_slopes: Any,
        sliding_window: Any,
        kv_cache_dtype: str,
        logits_soft_cap: Any = None,
        attn_type: str = "decoder",
        kv_sharing_target_layer_name: str | None = None,
    ) -> None:
        super().__init__(
            num_heads,
            head_size,
            scale,
            num_kv_heads,
            alibi_slopes,
            sliding_window,
            kv_cache_dtype,
            logits_soft_cap,
            attn_type,
            kv_sharing_target_layer_name,
        )
        self.supports_quant_query_input = True

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        return True

    def fused_rope_kvcache_supported(self) -> bool:
        return True

    def fused_qk_norm_rope_kvcache_supported(self) -> bool:
        return True

    def fused_qk_norm_mrope_kvcache_supported(self) -> bool:
        return True


class GpuLikeBackend(CPUAttentionBackend):
    @staticmethod
    def get_builder_cls() -> Any:
        return GraphBuilder

    @staticmethod
    def get_impl_cls() -> Any:
        return FusingImpl


@pytest.fixture
def gpu_like() -> Any:
    return wrap(GpuLikeBackend, FORMS["CPU_ATTN"], "HK_GPU_LIKE")


def test_is_the_parent_but_for_builder_and_implementation(hk_cpu: Any) -> None:
    assert issubclass(hk_cpu, CPUAttentionBackend)
    assert hk_cpu.get_name() == "CPU_ATTN"
    assert issubclass(hk_cpu.get_builder_cls(), CPUAttentionMetadataBuilder)
    assert issubclass(hk_cpu.get_impl_cls(), CPUAttentionBackendImpl)
    own = set(vars(hk_cpu)) - {"__module__", "__doc__", "__abstractmethods__", "_abc_impl"}
    assert own == {"get_builder_cls", "get_impl_cls"}


def test_resolves_by_its_own_path(hk_cpu: Any) -> None:
    from vllm.utils.import_utils import resolve_obj_by_qualname

    assert resolve_obj_by_qualname(".".join(hk_cpu.full_cls_name())) is hk_cpu


def test_metadata_is_the_parents(hk_cpu: Any, stock_cpu: Any) -> None:
    """Exactly what the parent would have built for the whole batch, the plan beside it."""
    mine, stock = (Batch(Layer(backend), ROWS).build() for backend in (hk_cpu, stock_cpu))
    assert isinstance(mine, CPUAttentionMetadata)
    assert mine.num_actual_tokens == stock.num_actual_tokens
    assert type(mine) is type(stock) is CPUAttentionMetadata
    for name, expected in vars(stock).items():
        if name == "scheduler_metadata":
            continue  # of the kernel's work split: pointers
        found = getattr(mine, name)
        if isinstance(expected, torch.Tensor):
            assert torch.equal(found, expected), name
        else:
            assert found == expected, name


def test_the_parent_gets_the_rows_before_hks(hk_cpu: Any) -> None:
    plan = Batch(Layer(hk_cpu), [Row(1, 9), Row(1, 40), EXTEND, FRESH]).build().hk
    head = plan.parent
    assert isinstance(head, CPUAttentionMetadata)
    assert head.num_actual_tokens == head.slot_mapping.shape[0] == 2
    assert head.max_query_len == 1
    assert head.max_seq_len == 41
    assert head.query_start_loc.tolist() == [0, 1, 2]
    assert head.seq_lens.tolist() == [10, 41]


def test_a_decode_batch_has_no_plan(hk_cpu: Any, counters: RouteCounters) -> None:
    batch = Batch(Layer(hk_cpu), [DECODE, Row(1, 3)])
    metadata = batch.build()
    assert metadata.hk is None
    batch.forward(metadata)
    batch.check()
    assert not counters.served.calls
    assert not counters.fallbacks
    assert not counters.dummy.calls


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


def test_a_parents_own_graph_support_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some builders decide by the configuration, not by the class attribute."""
    never = classmethod(lambda cls, config, spec: AttentionCGSupport.NEVER)
    monkeypatch.setattr(GraphBuilder, "get_cudagraph_support", never)
    builder = wrap(GpuLikeBackend, FORMS["CPU_ATTN"], "HK_OWN_GRAPHS").get_builder_cls()
    assert builder.get_cudagraph_support(None, None) is AttentionCGSupport.NEVER


def test_nothing_is_routed_in_a_capture(gpu_like: Any, counters: RouteCounters) -> None:
    layer = Layer(gpu_like)
    batch = Batch(layer, [FRESH, FRESH])
    metadata = layer.builder.build_for_cudagraph_capture(batch.common_metadata())
    assert metadata.seq_lens.tolist() == [1, 1], "the parent's own capture build must run"
    batch.forward(metadata)
    assert not counters.served.calls
    assert (counters.dummy.calls, counters.dummy.tokens) == (1, len(batch.query))


def test_new_block_tables_reach_the_plan(gpu_like: Any, counters: RouteCounters) -> None:
    """Groups of layers share a build and exchange only the block table."""
    layer = Layer(gpu_like)
    batch = Batch(layer, ROWS)
    foreign = batch.block_table.flip(0)
    slots = batch.common_metadata().slot_mapping
    built = batch.build(block_table_tensor=foreign, slot_mapping=slots.flip(0))
    before = built.hk.step.block_table.clone()
    updated = layer.builder.update_block_table(built, batch.block_table, slots)
    batch.forward(updated)
    batch.check()
    assert counters.served.tokens == EXTEND.query + FRESH.query
    assert torch.equal(built.hk.step.block_table, before), "the first group's plan must stay"
    assert torch.equal(updated.hk.parent.slot_mapping, slots[:1])


def test_new_block_tables_behind_an_extend_of_the_parents(gpu_like: Any) -> None:
    """Where the cache cannot be read the parent's rows have more tokens than rows."""
    layer = Layer(gpu_like)
    layer.builder._hk_cache_refusal = "an unreadable cache"
    batch = Batch(layer, [DECODE, EXTEND, FRESH])
    slots = batch.common_metadata().slot_mapping
    built = batch.build(slot_mapping=slots.flip(0))
    updated = layer.builder.update_block_table(built, batch.block_table, slots)
    parents = DECODE.query + EXTEND.query
    assert torch.equal(updated.hk.parent.slot_mapping, slots[:parents])
    assert updated.hk.parent.num_actual_tokens == parents


@pytest.mark.parametrize("refused", ["", "a test"], ids=["together", "refused"])
@pytest.mark.parametrize("rows", [[EXTEND, DECODE, FRESH], [DECODE, FRESH, Row(1, 3)]], ids=str)
def test_new_block_tables_of_gathered_rows(gpu_like: Any, rows: list[Row], refused: str) -> None:
    layer = Layer(gpu_like)
    layer.builder._hk_refusal = refused
    batch = Batch(layer, rows)
    slots = batch.common_metadata().slot_mapping
    built = batch.build(block_table_tensor=batch.block_table.flip(0), slot_mapping=slots.flip(0))
    batch.forward(layer.builder.update_block_table(built, batch.block_table, slots))
    batch.check()


@pytest.mark.parametrize("rows", [[DECODE], [FRESH, DECODE]], ids=["no plan", "refused"])
def test_new_block_tables_without_rows_for_hk(gpu_like: Any, rows: list[Row]) -> None:
    layer = Layer(gpu_like)
    layer.builder._hk_refusal = "a test"
    batch = Batch(layer, rows)
    built = batch.build()
    slots = batch.common_metadata().slot_mapping
    updated = layer.builder.update_block_table(built, batch.block_table, slots)
    assert updated.hk is built.hk
    batch.forward(updated)
    batch.check()


def test_asks_the_runner_for_decodes_first(hk_cpu: Any) -> None:
    assert Layer(hk_cpu).builder.reorder_batch_threshold == 1


def test_keeps_the_order_a_parent_asks_for(monkeypatch: pytest.MonkeyPatch, gpu_like: Any) -> None:
    monkeypatch.setattr(GraphBuilder, "reorder_batch_threshold", 7)
    assert Layer(gpu_like).builder.reorder_batch_threshold == 7


def test_fusions_of_a_served_layer(gpu_like: Any) -> None:
    impl = Layer(gpu_like).impl
    assert impl.fused_rope_kvcache_supported()
    assert impl.fused_qk_norm_rope_kvcache_supported()
    assert not impl.fused_qk_norm_mrope_kvcache_supported(), "its keys reach HK unrotated"
    assert not impl.fused_output_quant_supported(None)
    assert not impl.supports_quant_query_input


def test_fusions_of_a_refused_layer_are_the_parents(
    gpu_like: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hk_vllm.attention.impl.layer_verdict", lambda impl, layer: refused("a reason")
    )
    impl = Layer(gpu_like).impl
    assert impl.fused_qk_norm_mrope_kvcache_supported()
    assert impl.fused_output_quant_supported(None)
    assert impl.supports_quant_query_input


def test_in_vllms_chunked_local_attention(
    hk_cpu: Any, stock_cpu: Any, counters: RouteCounters
) -> None:
    """vLLM derives a builder from ours that cuts every request into rows of one chunk."""
    rows = [Row(1, 69), Row(40, 50), Row(70), Row(64, 64)]
    outputs = []
    for backend in (hk_cpu, stock_cpu):
        layer = Layer(backend)
        local = create_chunked_local_attention_backend(backend, BLOCK_SIZE)
        spec = layer.module.get_kv_cache_spec(layer.config)
        layer.builder = local.get_builder_cls()(
            spec, [LAYER_NAME], layer.config, torch.device("cpu")
        )
        batch = Batch(layer, rows)
        # only the chunk behind each token counts: the whole sequence must not give this
        outputs.append(batch.run()[: batch.num_tokens])
        with pytest.raises(AssertionError, match="out of bounds"):
            batch.check()
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    assert counters.served.tokens == 174
    assert not counters.fallbacks


def test_in_vllms_fast_prefill(hk_cpu: Any, counters: RouteCounters) -> None:
    """vLLM derives a builder from ours that rebuilds the metadata, without the plan."""
    layer = Layer(hk_cpu)
    fast = create_fast_prefill_custom_backend("Fast", hk_cpu)
    spec = layer.module.get_kv_cache_spec(layer.config)
    layer.builder = fast.get_builder_cls()(spec, [LAYER_NAME], layer.config, torch.device("cpu"))
    Batch(layer, ROWS).run_and_check()
    assert list(counters.fallbacks) == ["metadata rebuilt by the engine"]


def test_a_microbatch_sees_only_its_rows(hk_cpu: Any, counters: RouteCounters) -> None:
    """`num_reqs` and `num_actual_tokens` bound a batch whose tensors are larger."""
    batch = Batch(Layer(hk_cpu), [EXTEND, FRESH])
    wide = {
        name: torch.nn.functional.pad(tensor, (0, 2), value=999)
        for name, tensor in vars(batch.common_metadata()).items()
        if name in ("query_start_loc_cpu", "seq_lens_cpu_upper_bound")
    }
    batch.run(**wide)
    batch.check()
    assert counters.served.tokens == 11


def test_blocks_of_several_kernel_blocks(hk_cpu: Any) -> None:
    """Positions past a block's end go to the next entry of the block table."""
    Batch(
        Layer(hk_cpu), [Row(BLOCK_SIZE + 1, BLOCK_SIZE - 1), Row(3, 2 * BLOCK_SIZE)]
    ).run_and_check()
