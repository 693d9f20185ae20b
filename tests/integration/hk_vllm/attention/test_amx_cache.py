"""CPU_ATTN's cache for AMX: written by vLLM's own writer, which needs no AMX, and read by HK."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hk_vllm.attention.cache_forms import CPU_ATTN_AMX
from vllm import _custom_ops

from hk_backend.engine.cache_proof import UnknownCacheForm
from hk_backend.routing.routes import RouteCounters, Tally
from tests.integration.hk_vllm.attention.batch import Batch, Layer, Shape
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import EXTEND, FRESH, Row, prefill_tokens

LONG = Row(70, 85)
ROWS = [EXTEND, FRESH, LONG]
"""The parent's kernels are for AMX: every row is HK's."""


def state(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    isa: str,
    **scales: Any,
) -> None:
    """The form in plain torch, with the signature of vLLM's writer; for other processors, tokens
    one after the other.

    Args:
        key, value: `[tokens, heads, size]`.
        key_cache, value_cache: `[blocks, heads, block_size, size]`, each head's memory contiguous.
    """
    block_size, size = key_cache.shape[2:]
    block, token = slot_mapping[:, None] // block_size, slot_mapping[:, None] % block_size
    channel = torch.arange(size)
    keys = token // 16 * 16 * size + channel // 2 * 32 + token % 16 * 2 + channel % 2
    values = channel // 16 * 16 * block_size + token // 2 * 32 + channel % 16 * 2 + token % 2
    if isa != "amx":
        keys = values = token * size + channel
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


def test_vllm_writes_the_form_that_is_stated(amx: None) -> None:
    assert torch.equal(written(_custom_ops.cpu_attn_reshape_and_cache), written(state))


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("shape", [Shape(), Shape(6, 2, 96, 64), Shape(4, 4, 128, 32)], ids=str)
def test_extends_are_served(
    hk_cpu: Any,
    counters: RouteCounters,
    amx: None,
    monkeypatch: pytest.MonkeyPatch,
    shape: Shape,
    stated: bool,
) -> None:
    """The proof passes, and the rows are right."""
    if stated:
        monkeypatch.setattr(_custom_ops, "cpu_attn_reshape_and_cache", state)
    monkeypatch.setattr("hk_backend.engine.cache_proof._proven", set())
    layer = Layer(hk_cpu, dtype=torch.bfloat16, shape=shape)
    Batch(layer, ROWS).run_and_check()
    assert layer.impl._hk_form is CPU_ATTN_AMX
    assert counters.served == Tally(1, prefill_tokens(ROWS))
    assert not counters.fallbacks


def test_a_writer_of_another_form_is_found(
    hk_cpu: Any,
    counters: RouteCounters,
    amx: None,
    monkeypatch: pytest.MonkeyPatch,
    parent_calls: list[Any],
) -> None:
    """The proof fails: extends are the parent's."""
    monkeypatch.setattr("hk_backend.engine.cache_proof._proven", set())
    layer = Layer(hk_cpu, dtype=torch.bfloat16)
    layer.module.isa = "vec"
    Batch(layer, ROWS).run()
    (why,) = counters.fallbacks
    assert why.startswith("the cache does not have the expected form")
    fell_back(counters, why, prefill_tokens(ROWS))
    assert len(parent_calls) == 1


def test_a_block_that_is_not_of_sixteens(hk_cpu: Any, amx: None) -> None:
    layer = Layer(hk_cpu, dtype=torch.bfloat16)
    with pytest.raises(UnknownCacheForm, match="24 tokens in a block and head size 64"):
        layer.impl._hk_form.read(layer.kv_cache[:, :, :24].contiguous(), layer.impl)
