"""Caches that HK reads, proven on the running engine, and caches that it cannot read.

Other tests hold masks, and layers that are measured beside the parent.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hk_vllm.attention import probe
from hk_vllm.attention.cache_forms import CPU_ATTN_AMX
from vllm import _custom_ops

from hk_backend.engine import cache_proof
from hk_backend.engine.cache_proof import UnknownCacheForm
from hk_backend.engine.strict import StrictError
from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.adapter import Environment
from tests.integration.hk_vllm.attention.batch import (
    HEAD_SIZE,
    LAYER_NAME,
    MIXED,
    NUM_HEADS,
    NUM_KV_HEADS,
    PREFILL,
    Batch,
    Layer,
    Shape,
    constructing,
)
from tests.integration.hk_vllm.attention.engine import HK_CPU, STOCK_CPU, prompt, short_steps
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import EXTEND, FRESH, Row, prefill_tokens
from tests.integration.shared.evidence import Bench, assert_same_attention

# -- CPU_ATTN's form for AMX: vLLM's own writer needs no AMX


def state(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    isa: str,
    **scales: Any,
) -> None:
    """Write the form in plain torch, with the signature of vLLM's writer.

    Args:
        key, value: `[tokens, heads, size]`.
        key_cache, value_cache: `[blocks, heads, block_size, size]`, each head's memory contiguous.
    """
    assert isa == "amx"
    block_size, size = key_cache.shape[2:]
    block, token = slot_mapping[:, None] // block_size, slot_mapping[:, None] % block_size
    channel = torch.arange(size)
    keys = token // 16 * 16 * size + channel // 2 * 32 + token % 16 * 2 + channel % 2
    values = channel // 16 * 16 * block_size + token // 2 * 32 + channel % 16 * 2 + token % 2
    key_cache.flatten(2)[block, :, keys] = key.transpose(1, 2)
    value_cache.flatten(2)[block, :, values] = value.transpose(1, 2)


@pytest.fixture
def amx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vLLM believe that it has AMX.

    Its library for processors without AVX-512 lacks the writer, and gets `state` instead.
    """
    monkeypatch.setattr("vllm.v1.attention.backends.cpu_attn._get_attn_isa", lambda *args: "amx")
    try:
        written(_custom_ops.cpu_attn_reshape_and_cache)
    except RuntimeError:
        monkeypatch.setattr(_custom_ops, "cpu_attn_reshape_and_cache", state)


def written(write: Any) -> torch.Tensor:
    """A cache of two blocks after `write` has written most of their tokens."""
    generator = torch.Generator().manual_seed(0)
    key, value = (torch.randn(60, 2, 96, generator=generator).bfloat16() for _ in range(2))
    cache = torch.zeros(2, 2, 64, 96, dtype=torch.bfloat16)
    keys, values = cache.chunk(2, dim=2)
    write(key, value, keys, values, torch.randperm(64, generator=generator)[:60], "amx")
    return cache


@pytest.mark.parametrize("shape", [Shape(), Shape(6, 2, 96, 64), Shape(4, 4, 128, 32)], ids=str)
def test_amx(
    counters: RouteCounters, amx: None, monkeypatch: pytest.MonkeyPatch, shape: Shape
) -> None:
    """vLLM writes the form that `state` defines, the proof passes, and the rows are right.

    The parent's kernels need AMX, so HK computes every row.
    """
    assert torch.equal(written(_custom_ops.cpu_attn_reshape_and_cache), written(state))
    rows = [EXTEND, FRESH, Row(70, 85)]
    monkeypatch.setattr(cache_proof, "_proven", set())
    layer = Layer(HK_CPU, dtype=torch.bfloat16, shape=shape)
    Batch(layer, rows).run_and_check()
    assert layer.impl._hk_form is CPU_ATTN_AMX
    assert counters.served == Tally(1, prefill_tokens(rows))
    assert not counters.fallbacks


# -- caches that HK does not read


def test_shapes_of_no_form(layer: Layer, amx: None) -> None:
    with pytest.raises(UnknownCacheForm, match=r"expected \[blocks, 2, tokens, 128\]"):
        layer.impl._hk_form.read(torch.zeros(4, 2, 32, 130), layer.impl)
    layer = Layer(HK_CPU, dtype=torch.bfloat16)
    with pytest.raises(UnknownCacheForm, match="24 tokens in a block and head size 64"):
        layer.impl._hk_form.read(layer.kv_cache[:, :, :24].contiguous(), layer.impl)


def test_a_form_that_vllm_adds(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM computes the rows that need the cache, with the reason; HK_STRICT refuses to start."""
    monkeypatch.setattr("vllm.v1.attention.backends.cpu_attn._get_attn_isa", lambda *_: "vxe")
    layer = Layer(HK_CPU)
    assert "vxe cache form" in layer.impl._hk_cache_refusal
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="vxe cache form"):
        Layer(HK_CPU)


def test_every_layer_of_a_group_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One builder serves a group of layers. If it cannot read the cache, none of them may."""
    from vllm.model_executor.layers.attention import Attention

    layer, other = Layer(HK_CPU), "model.layers.1.attn"
    sizes = NUM_HEADS, HEAD_SIZE, HEAD_SIZE**-0.5, NUM_KV_HEADS
    cache = layer.config.cache_config
    with constructing(layer.config, layer.dtype):
        second = Attention(*sizes, cache_config=cache, prefix=other, attn_backend=HK_CPU)
    monkeypatch.setattr("hk_vllm.attention.builder.refuse_cache", lambda impls, size: "a test")
    layer.new_builder(HK_CPU.get_builder_cls(), [LAYER_NAME, other])
    assert [layer.impl._hk_cache_refusal, second.impl._hk_cache_refusal] == ["a test"] * 2


# -- the proof


@pytest.mark.parametrize("dummy_first", [False, True])
def test_a_cache_that_does_not_read_back(
    layer: Layer, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, dummy_first: bool
) -> None:
    """A cache that HK reads back wrongly leaves cached tokens to the parent, and fresh ones to HK.

    A dummy run counts as nobody's.
    """
    known = layer.impl._hk_form

    def misread(kv_cache: torch.Tensor, impl: Any) -> Any:
        return known.split(kv_cache.flip(1).contiguous(), impl)

    monkeypatch.setattr(cache_proof, "_proven", set())
    monkeypatch.setattr(layer.impl, "_hk_form", replace(known, split=misread))
    batch = Batch(layer, MIXED)
    if dummy_first:
        tensors = batch.query, batch.key, batch.value
        layer.impl.forward(layer.module, *tensors, layer.kv_cache, None, output=batch.output)
        assert counters.dummy == Tally(1, len(batch.query))
        batch.output.fill_(torch.nan)
    batch.run_and_check()
    (why,) = counters.fallbacks
    assert why.startswith("the cache does not have the expected form")
    fell_back(counters, why, PREFILL)
    Batch(layer, [FRESH]).run_and_check()
    assert counters.served == Tally(1, FRESH.query)


def test_another_cache_is_read_where_it_lies(counters: RouteCounters) -> None:
    """The engine may bind another tensor to a layer, for sleep mode or profiling.

    A smaller pool may begin where the larger one did. Blocks behind its end are not HK's.
    """
    layer = Layer(HK_CPU)
    Batch(layer, [EXTEND]).run()
    layer.kv_cache = torch.empty_like(layer.kv_cache)
    Batch(layer, [EXTEND], seed=1).run_and_check()
    assert counters.served.calls == 2
    fewer = layer.kv_cache[: layer.num_blocks // 2]
    assert layer.impl._hk_paged(layer.module, fewer).num_blocks == layer.num_blocks // 2


# -- vLLM's arguments, in HK's terms

SLOPES, SINKS = [0.5, 0.25, 0.125, 0.0625], torch.tensor([1.0, -1.0, 3.0, 0.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("arguments", "mask"),
    [
        ({"per_layer_sliding_window": 8}, {"sliding_window": 8}),
        ({"logits_soft_cap": 2.0}, {"logits_soft_cap": 2.0}),
        ({"alibi_slopes": SLOPES}, {"alibi_slopes": torch.tensor(SLOPES)}),
        ({"sinks": SINKS}, {"sinks": SINKS}),
        ({"sinks": SINKS.bfloat16()}, {"sinks": SINKS}),
    ],
    ids=["window", "softcap", "alibi", "sinks", "sinks in bfloat16"],
)
def test_masks_reach_the_operator(
    counters: RouteCounters, dtype: torch.dtype, arguments: dict[str, Any], mask: dict[str, Any]
) -> None:
    Batch(Layer(HK_CPU, dtype, arguments=arguments), [EXTEND, FRESH, Row(20)]).run_and_check(**mask)
    assert counters.served.tokens == 31


def test_a_probe_s_cache_holds_keys_then_values_of_each_head() -> None:
    cache = torch.zeros(4, 2, probe.BLOCK_SIZE, 6)
    key, value = torch.randn(2, 3, 2, 3)
    slots = torch.tensor([0, probe.BLOCK_SIZE + 5, 3 * probe.BLOCK_SIZE - 1])
    probe.Impl(2, 3, 1.0).do_kv_cache_update(torch.nn.Module(), key, value, cache, slots)
    for token, slot in enumerate(slots.tolist()):
        block, place = divmod(slot, probe.BLOCK_SIZE)
        assert torch.equal(cache[block, :, place, :3], key[token])
        assert torch.equal(cache[block, :, place, 3:], value[token])
    assert cache.count_nonzero() == 2 * key.numel()


# -- contests: measured beside the parent, when vLLM constructs a layer


KIND = f"attention float32, {NUM_HEADS}/2 heads of {HEAD_SIZE}, causal"


def layer_of(backend: Any, dtype: torch.dtype = torch.float32, **arguments: Any) -> Layer:
    return Layer(backend, dtype, short_steps(dtype), arguments)


@pytest.mark.parametrize(
    ("arguments", "mask"),
    [
        ({"per_layer_sliding_window": 16}, {"sliding_window": 16}),
        ({"logits_soft_cap": 2.0}, {"logits_soft_cap": 2.0}),
        ({"alibi_slopes": SLOPES}, {"alibi_slopes": torch.tensor(SLOPES)}),
        ({"sinks": torch.full((NUM_HEADS,), torch.nan)}, {"sinks": torch.zeros(NUM_HEADS)}),
    ],
    ids=["window", "cap", "alibi", "sinks"],
)
def test_both_sides_get_the_layers_arguments(
    bench: Bench, arguments: dict[str, Any], mask: dict[str, Any]
) -> None:
    """HK and the parent compute with zeros for sinks, which have no values yet.

    Nothing stays of the parent's own layer. Other arguments make another kind.
    """
    layer = layer_of(HK_CPU, **arguments)
    assert_same_attention(bench, partial(prompt, layer), **mask)
    assert list(layer.config.compilation_config.static_forward_context) == [LAYER_NAME]
    assert layer.config.cache_config.cache_dtype == "auto"
    layer_of(HK_CPU)
    assert len(bench.rows) == 2


def test_a_layer_that_the_parent_computes_faster(
    bench: Bench, counters: RouteCounters, environment: Environment
) -> None:
    """The layer becomes stock vLLM's, with its fusions and graphs; HK_STRICT refuses it."""
    bench.let_the_engine_win()
    layer, stock = layer_of(HK_CPU), layer_of(STOCK_CPU)
    assert layer.config.compute_hash() == stock.config.compute_hash()
    assert layer.impl.supports_quant_query_input == stock.impl.supports_quant_query_input
    Batch(layer, MIXED).run_and_check()
    fell_back(counters, f"faster without HK: {KIND}: 32 rows: HK 2 us, the engine 1 us", PREFILL)
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="attention would fall back: faster without HK"):
        layer_of(HK_CPU)


def test_kinds_of_a_group_decide_together(bench: Bench) -> None:
    """HK computes a step if no layer of the group is slower in it."""
    full = layer_of(HK_CPU)
    bench.ours = lambda tokens: 3.0 if tokens < 128 else 1.0
    windowed = layer_of(HK_CPU, per_layer_sliding_window=16)
    full.config.compilation_config.static_forward_context["other"] = windowed.module
    assert Batch(full, MIXED).build().hk.refusal == ""
    full.builder = full.new_builder(HK_CPU.get_builder_cls(), [LAYER_NAME, "other"])
    assert "window of 16" in Batch(full, MIXED).build().hk.refusal


def test_each_set_of_kinds_has_its_own_graphs(bench: Bench) -> None:
    """vLLM may fuse operators around layers that HK leaves to the parent."""

    def key(window_wins: bool) -> str:
        config = short_steps()
        bench.ours = lambda tokens: 1.0
        Layer(HK_CPU, config=config)
        if not window_wins:
            bench.let_the_engine_win()
        window = 16 if window_wins else 17
        config.compilation_config.static_forward_context.clear()
        Layer(HK_CPU, config=config, arguments={"per_layer_sliding_window": window})
        found: str = config.compute_hash()
        return found

    assert key(True) != key(False)
