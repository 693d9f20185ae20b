"""The contract with SGLang: every way to break it is seen, and named."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

import pytest
from hk_sglang.contract import BATCH_FIELDS, check_engine
from sglang.srt.arg_groups import overrides, resolution_hooks
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
    assert check_engine()


def test_the_first_step_is_the_first() -> None:
    """Nothing of SGLang asks what `hk` means before it is taken out."""
    import inspect

    from hk_sglang.flags import FIRST_STEP
    from sglang.srt.arg_groups import pipeline

    source = inspect.getsource(pipeline.run_resolution_pipeline)
    assert source.index("run_hook(") == source.index(f"run_hook({FIRST_STEP}, ")


@pytest.mark.parametrize(
    ("owner", "name", "replacement", "named"),
    [
        (forward_batch_info, "ForwardBatch", without("seq_lens"), "seq_lens"),
        (
            forward_batch_info,
            "ForwardBatch",
            without("extend_seq_lens_cpu", "extend_prefix_lens_cpu"),
            "extend_seq_lens_cpu, extend_prefix_lens_cpu",
        ),
        (
            base_attn_backend.AttentionBackend,
            "forward_extend",
            lambda self, batch: None,
            "(self, batch)",
        ),
        (
            base_attn_backend.AttentionBackend,
            "init_forward_metadata_out_graph",
            lambda self, forward_batch: None,
            "(self, forward_batch), expected (self, forward_batch, in_capture",
        ),
        (
            base_attn_backend.AttentionBackend,
            "init_forward_metadata",
            lambda self: None,
            "(self), expected (self, forward_batch",
        ),
        (radix_attention.RadixAttention, "__init__", lambda self, heads: None, "(self, heads)"),
        (
            memory_pool.MHATokenToKVPool,
            "set_kv_buffer",
            lambda self, layer, loc, k, v: None,
            "(self, layer, loc, k, v)",
        ),
        (
            swa_memory_pool.SWAKVPool,
            "translate_loc_from_full_to_swa",
            lambda self, slots: None,
            "(self, slots)",
        ),
        (overrides, "declare_resolution", lambda fields: None, "(fields)"),
        (attention_registry, "register_attention_backend", lambda path: None, "(path)"),
        (
            resolution_hooks,
            "_OVERRIDABLE_HOOKS",
            frozenset(),
            "handle_deprecated_dp_attention",
        ),
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
        (base_attn_backend.AttentionBackend, "forward_metadata"),
    ],
    ids=short,
)
def test_something_missing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    monkeypatch.delattr(owner, name)
    assert_refused(check_engine, name)
