"""Caches that HK reads, proven on the running engine, and those that it does not; masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hk_vllm.attention import probe
from hk_vllm.attention.cache_forms import CPU_ATTN_AMX
from vllm import _custom_ops

from hk_backend.engine import cache_proof
from hk_backend.engine.cache_proof import UnknownCacheForm
from hk_backend.routing.routes import RouteCounters, Tally
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
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import EXTEND, FRESH, Row, prefill_tokens

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
    """The form in plain torch, with the signature of vLLM's writer.

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
    """vLLM believes that it has AMX; its library for processors without AVX-512 has no such
    writer, and gets the form as stated here."""
    monkeypatch.setattr("vllm.v1.attention.backends.cpu_attn._get_attn_isa", lambda *args: "amx")
    try:
        written(_custom_ops.cpu_attn_reshape_and_cache)
    except RuntimeError:
        monkeypatch.setattr(_custom_ops, "cpu_attn_reshape_and_cache", state)


def written(write: Any) -> torch.Tensor:
    """A cache of two blocks, of which a few tokens are not written."""
    generator = torch.Generator().manual_seed(0)
    key, value = (torch.randn(60, 2, 96, generator=generator).bfloat16() for _ in range(2))
    cache = torch.zeros(2, 2, 64, 96, dtype=torch.bfloat16)
    keys, values = cache.chunk(2, dim=2)
    write(key, value, keys, values, torch.randperm(64, generator=generator)[:60], "amx")
    return cache


@pytest.mark.parametrize("shape", [Shape(), Shape(6, 2, 96, 64), Shape(4, 4, 128, 32)], ids=str)
def test_amx(
    hk_cpu: Any,
    counters: RouteCounters,
    amx: None,
    monkeypatch: pytest.MonkeyPatch,
    shape: Shape,
) -> None:
    """vLLM writes the form that is stated; the proof passes, and the rows are right. The parent's
    kernels are for AMX: every row is HK's."""
    assert torch.equal(written(_custom_ops.cpu_attn_reshape_and_cache), written(state))
    rows = [EXTEND, FRESH, Row(70, 85)]
    monkeypatch.setattr(cache_proof, "_proven", set())
    layer = Layer(hk_cpu, dtype=torch.bfloat16, shape=shape)
    Batch(layer, rows).run_and_check()
    assert layer.impl._hk_form is CPU_ATTN_AMX
    assert counters.served == Tally(1, prefill_tokens(rows))
    assert not counters.fallbacks


# -- what is not read


def test_shapes_of_no_form(hk_cpu: Any, layer: Layer, amx: None) -> None:
    with pytest.raises(UnknownCacheForm, match=r"expected \[blocks, 2, tokens, 128\]"):
        layer.impl._hk_form.read(torch.zeros(4, 2, 32, 130), layer.impl)
    layer = Layer(hk_cpu, dtype=torch.bfloat16)
    with pytest.raises(UnknownCacheForm, match="24 tokens in a block and head size 64"):
        layer.impl._hk_form.read(layer.kv_cache[:, :, :24].contiguous(), layer.impl)


def test_every_layer_of_a_group_is_told(hk_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One builder serves the layers of a group: what it cannot read none of them may."""
    from vllm.model_executor.layers.attention import Attention

    layer, other = Layer(hk_cpu), "model.layers.1.attn"
    sizes = NUM_HEADS, HEAD_SIZE, HEAD_SIZE**-0.5, NUM_KV_HEADS
    cache = layer.config.cache_config
    with constructing(layer.config, layer.dtype):
        second = Attention(*sizes, cache_config=cache, prefix=other, attn_backend=hk_cpu)
    monkeypatch.setattr("hk_vllm.attention.builder.refuse_cache", lambda impls, size: "a test")
    layer.new_builder(hk_cpu.get_builder_cls(), [LAYER_NAME, other])
    assert [layer.impl._hk_cache_refusal, second.impl._hk_cache_refusal] == ["a test"] * 2


# -- the proof


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The caches that were written to and read back from now on."""
    done: list[Any] = []
    prove = cache_proof.prove

    def noted(cache: Any, *rest: Any) -> None:
        done.append(cache)
        prove(cache, *rest)

    monkeypatch.setattr(cache_proof, "_proven", set())
    monkeypatch.setattr(cache_proof, "prove", noted)
    return done


def dummy_run(layer: Layer, batch: Batch, cache: torch.Tensor) -> None:
    tensors = batch.query, batch.key, batch.value
    layer.impl.forward(layer.module, *tensors, cache, None, output=batch.output)


@pytest.mark.parametrize("dummy_first", [False, True])
def test_a_cache_that_does_not_read_back(
    layer: Layer,
    counters: RouteCounters,
    monkeypatch: pytest.MonkeyPatch,
    proofs: list[Any],
    dummy_first: bool,
) -> None:
    """A writer that HK does not know: cached tokens are the parent's, fresh ones are not."""
    known = layer.impl._hk_form

    def misread(kv_cache: torch.Tensor, impl: Any) -> Any:
        return known.read(kv_cache.flip(1).contiguous(), impl)

    monkeypatch.setattr(layer.impl, "_hk_form", replace(known, read=misread))
    batch = Batch(layer, MIXED)
    if dummy_first:
        dummy_run(layer, batch, layer.kv_cache)
    batch.run_and_check()
    (why,) = counters.fallbacks
    assert why.startswith("the cache does not have the expected form")
    fell_back(counters, why, PREFILL)
    assert len(proofs) == 1
    Batch(layer, [FRESH]).run_and_check()
    assert counters.served == Tally(1, FRESH.query)


# -- what vLLM's arguments mean to HK

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
    hk_cpu: Any,
    counters: RouteCounters,
    dtype: torch.dtype,
    arguments: dict[str, Any],
    mask: dict[str, Any],
) -> None:
    Batch(Layer(hk_cpu, dtype, arguments=arguments), [EXTEND, FRESH, Row(20)]).run_and_check(**mask)
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
