"""Caches that HK does not read: of another form, or with other bytes than their form says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hk_vllm.attention.cache_forms import FORMS

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
    constructing,
)
from tests.integration.shared.attention.counted import fell_back
from tests.integration.shared.attention.rows import EXTEND, FRESH


def test_extends_over_an_unreadable_cache(
    layer: Layer, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tokens are counted as a fallback of a call that HK served otherwise."""
    monkeypatch.setattr(layer.builder, "_hk_cache_refusal", "unreadable")
    Batch(layer, MIXED).run_and_check()
    assert counters.served == Tally(1, FRESH.query)
    assert dict(counters.fallbacks) == {"unreadable": Tally(1, EXTEND.query)}


@pytest.mark.parametrize("isa", ["neon", "rvv", "vsx", "vxe"])
def test_cache_forms_of_cpu_attn_that_are_not_read(isa: str) -> None:
    with pytest.raises(UnknownCacheForm, match=f"CPU_ATTN's {isa} cache form is not readable"):
        FORMS["CPU_ATTN"](SimpleNamespace(isa=isa))


def test_a_cache_that_does_not_read_back(
    layer: Layer, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that HK does not know: cached tokens are the parent's, fresh ones are not."""
    known = layer.impl._hk_form

    def misread(kv_cache: torch.Tensor, impl: Any) -> Any:
        return known.read(kv_cache.flip(1).contiguous(), impl)

    monkeypatch.setattr("hk_backend.engine.cache_proof._proven", set())
    monkeypatch.setattr(layer.impl, "_hk_form", replace(known, read=misread))
    Batch(layer, MIXED).run_and_check()
    (why,) = counters.fallbacks
    assert why.startswith("the cache does not have the expected form")
    fell_back(counters, why, PREFILL)
    Batch(layer, [FRESH]).run_and_check()
    assert counters.served == Tally(1, FRESH.query)


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


def test_a_dummy_run_proves_the_cache(layer: Layer, proofs: list[Any]) -> None:
    """Once the engine has bound one; no request pays for it, and the cache is left as it was."""
    batch = Batch(layer, MIXED)
    bound, layer.kv_cache = layer.kv_cache, torch.empty(0)
    for cache, proven in ((torch.empty(0), 0), (bound, 1), (bound, 1)):
        before = cache.clone()
        layer.impl.forward(
            layer.module, batch.query, batch.key, batch.value, cache, None, output=batch.output
        )
        assert len(proofs) == proven
        assert torch.equal(cache, before)
    layer.kv_cache = bound
    batch.run_and_check()
    assert len(proofs) == 1


def test_a_dummy_run_leaves_a_refused_cache_alone(
    hk_cpu: Any, monkeypatch: pytest.MonkeyPatch, proofs: list[Any], caplog: Any
) -> None:
    monkeypatch.setattr("vllm.v1.attention.backends.cpu_attn._get_attn_isa", lambda *args: "vxe")
    layer = Layer(hk_cpu)
    batch = Batch(layer, [FRESH])
    layer.impl.forward(
        layer.module, batch.query, batch.key, batch.value, layer.kv_cache, None, output=batch.output
    )
    assert not proofs
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_dummy_run_finds_a_cache_that_does_not_read_back(
    layer: Layer, counters: RouteCounters, monkeypatch: pytest.MonkeyPatch, proofs: list[Any]
) -> None:
    known = layer.impl._hk_form

    def misread(kv_cache: torch.Tensor, impl: Any) -> Any:
        return known.read(kv_cache.flip(1).contiguous(), impl)

    monkeypatch.setattr(layer.impl, "_hk_form", replace(known, read=misread))
    batch = Batch(layer, MIXED)
    layer.impl.forward(
        layer.module, batch.query, batch.key, batch.value, layer.kv_cache, None, output=batch.output
    )
    batch.run_and_check()
    (why,) = counters.fallbacks
    assert why.startswith("the cache does not have the expected form")
    assert len(proofs) == 1


def test_a_cache_of_another_shape(layer: Layer) -> None:
    wide = torch.zeros(4, 2, 32, 130)
    with pytest.raises(UnknownCacheForm, match=r"expected \[blocks, 2, tokens, 128\]"):
        layer.impl._hk_form.read(wide, layer.impl)


def test_a_cache_bound_again_at_the_same_address(layer: Layer) -> None:
    """A smaller pool may begin where the larger one did: blocks behind its end are not HK's."""
    Batch(layer, [EXTEND, FRESH]).run()
    whole = layer.impl._hk_paged(layer.module, layer.kv_cache)
    fewer = layer.kv_cache[: layer.num_blocks // 2]
    assert fewer.data_ptr() == layer.kv_cache.data_ptr()
    assert layer.impl._hk_paged(layer.module, fewer).num_blocks == layer.num_blocks // 2
    assert whole.num_blocks == layer.num_blocks


def test_every_layer_of_a_group_is_told(hk_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One builder serves the layers of a group: what it cannot read none of them may."""
    from vllm.model_executor.layers.attention import Attention

    layer, other = Layer(hk_cpu), "model.layers.1.attn"
    with constructing(layer.config, layer.dtype):
        second = Attention(
            NUM_HEADS,
            HEAD_SIZE,
            HEAD_SIZE**-0.5,
            NUM_KV_HEADS,
            cache_config=layer.config.cache_config,
            prefix=other,
            attn_backend=hk_cpu,
        )
    monkeypatch.setattr("hk_vllm.attention.builder.refuse_cache", lambda impls, size: "a test")
    spec = layer.module.get_kv_cache_spec(layer.config)
    hk_cpu.get_builder_cls()(spec, [LAYER_NAME, other], layer.config, torch.device("cpu"))
    assert [layer.impl._hk_cache_refusal, second.impl._hk_cache_refusal] == ["a test"] * 2
