"""The contract with vLLM: every way to break it is seen, and named."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

import hk_vllm.attention.backend
import pytest
from hk_vllm.contract import BATCH_FIELDS, check_engine, check_parent
from vllm.v1.attention import backend
from vllm.v1.attention.backends import registry
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

from tests.integration.shared.contract import assert_refused, short


def without(*missing: str) -> Any:
    """CommonAttentionMetadata with fields missing."""
    names = [name for name in BATCH_FIELDS if name not in missing]
    batch = make_dataclass("CommonAttentionMetadata", names)
    batch.replace = backend.CommonAttentionMetadata.replace
    return batch


BUILDER, IMPL = backend.AttentionMetadataBuilder, backend.AttentionImpl
ENDS = "query_start_loc_cpu, is_prefilling"


@pytest.mark.parametrize(
    ("owner", "name", "replacement", "named"),
    [
        (backend, "CommonAttentionMetadata", without("seq_lens"), "seq_lens"),
        (backend, "CommonAttentionMetadata", without(*ENDS.split(", ")), ENDS),
        (BUILDER, "build", lambda self, batch: None, "(self, batch)"),
        (BUILDER, "build_for_drafting", lambda self, index: None, "(self, index)"),
        (BUILDER, "update_block_table", lambda self, metadata: None, "(self, metadata)"),
        (IMPL, "forward", lambda self, query: None, "(self, query)"),
        (IMPL, "__init__", lambda self, heads: None, "(self, heads)"),
        (registry, "register_backend", lambda path: None, "(path)"),
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
        (backend, "CommonAttentionMetadata"),
        (backend, "AttentionImpl"),
        (backend, "AttentionCGSupport"),
        (backend, "AttentionType"),
        (BUILDER, "build_for_cudagraph_capture"),
        (BUILDER, "get_cudagraph_support"),
        (BUILDER, "_init_reorder_batch_threshold"),
        (BUILDER, "reorder_batch_threshold"),
        (backend.AttentionBackend, "customize_spec"),  # until 0.28
        (registry, "AttentionBackendEnum"),
    ],
    ids=short,
)
def test_something_missing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    monkeypatch.delattr(owner, name)
    assert_refused(check_engine, name)


def derived(of: str, **members: Any) -> Any:
    """What returns a class like that which the CPU backend's method `of` returns."""
    base = getattr(CPUAttentionBackend, of)()
    return {of: staticmethod(lambda: type("Derived", (base,), members))}


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"forward_includes_kv_cache_update": True}, "writes the KV cache itself"),
        ({"is_mla": classmethod(lambda cls: True)}, "latent attention"),
        (derived("get_impl_cls", forward=lambda self, q: q), "(self, q)"),
        (derived("get_impl_cls", do_kv_cache_update=lambda self, key: None), "(self, key)"),
        ({"get_impl_cls": staticmethod(lambda: IMPL)}, "do_kv_cache_update"),
        (derived("get_builder_cls", build=lambda self, batch: None), "(self, batch)"),
    ],
    ids=short,
)
def test_parents_that_cannot_be_wrapped(members: dict[str, Any], named: str) -> None:
    parent: Any = type("Parent", (CPUAttentionBackend,), members)
    assert_refused(lambda: check_parent(parent), named)
    original = registry.AttentionBackendEnum.CPU_ATTN.value
    assert named in hk_vllm.attention.backend._why_left(parent, original), "it stays as it is"


@pytest.mark.parametrize("name", ["CPU_ATTN", "HK_FLASH_ATTN", "HK_", "nothing"])
def test_only_known_parents_have_wrappers(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(hk_vllm.attention.backend, name)
