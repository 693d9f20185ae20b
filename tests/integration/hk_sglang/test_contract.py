"""The contract with SGLang: every way to break it is seen, and named."""

from __future__ import annotations

import inspect
from dataclasses import make_dataclass
from typing import Any

import pytest
from hk_sglang.contract import BATCH_FIELDS, check_engine
from hk_sglang.flags import FIRST_STEP
from sglang.srt.arg_groups import overrides, pipeline, resolution_hooks
from sglang.srt.layers import radix_attention
from sglang.srt.layers.attention import attention_registry, base_attn_backend
from sglang.srt.mem_cache import memory_pool, swa_memory_pool
from sglang.srt.model_executor import forward_batch_info

from tests.integration.shared.contract import assert_refused, short


def without(*missing: str) -> Any:
    """ForwardBatch with fields missing."""
    names = [name for name in BATCH_FIELDS if name not in missing]
    return make_dataclass("ForwardBatch", names)


def test_this_sglang_keeps_it() -> None:
    """And nothing of it asks what `hk` means before it is taken out."""
    assert check_engine()
    source = inspect.getsource(pipeline.run_resolution_pipeline)
    assert source.index("run_hook(") == source.index(f"run_hook({FIRST_STEP}, ")


BACKEND = base_attn_backend.AttentionBackend
POOL, WINDOWS = memory_pool.MHATokenToKVPool, swa_memory_pool.SWAKVPool
LENGTHS = "extend_seq_lens_cpu, extend_prefix_lens_cpu"


@pytest.mark.parametrize(
    ("owner", "name", "replacement", "named"),
    [
        (forward_batch_info, "ForwardBatch", without("seq_lens"), "seq_lens"),
        (forward_batch_info, "ForwardBatch", without(*LENGTHS.split(", ")), LENGTHS),
        (BACKEND, "forward_extend", lambda self, batch: None, "(self, batch)"),
        (
            BACKEND,
            "init_forward_metadata_out_graph",
            lambda self, forward_batch: None,
            "(self, forward_batch), expected (self, forward_batch, in_capture",
        ),
        (
            BACKEND,
            "init_forward_metadata",
            lambda self: None,
            "(self), expected (self, forward_batch",
        ),
        (radix_attention.RadixAttention, "__init__", lambda self, heads: None, "(self, heads)"),
        (POOL, "set_kv_buffer", lambda self, layer, k, v: None, "(self, layer, k, v)"),
        (WINDOWS, "translate_loc_from_full_to_swa", lambda self, at: None, "(self, at)"),
        (overrides, "declare_resolution", lambda fields: None, "(fields)"),
        (attention_registry, "register_attention_backend", lambda path: None, "(path)"),
        (resolution_hooks, "_OVERRIDABLE_HOOKS", frozenset(), "handle_deprecated_dp_attention"),
    ],
    ids=short,
)
def test_something_else_in_its_place(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, replacement: Any, named: str
) -> None:
    monkeypatch.setattr(owner, name, replacement)
    assert_refused(check_engine, named)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (forward_batch_info, "ForwardBatch"),
        (forward_batch_info, "ForwardMode"),
        (memory_pool, "KVWriteLoc"),
        (memory_pool.KVWriteLoc, "for_layer"),
        (swa_memory_pool, "SWAKVPool"),
        (radix_attention, "AttentionType"),
        (attention_registry, "ATTENTION_BACKENDS"),
        (BACKEND, "forward_metadata"),
    ],
    ids=short,
)
def test_something_missing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    monkeypatch.delattr(owner, name)
    assert_refused(check_engine, name)


def test_each_route_has_a_contract_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_registry, "register_attention_backend", lambda path: None)
    assert not check_engine("attention")
    assert check_engine("linear")
