"""The contract with vLLM: every way to break it is seen, and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from typing import Any

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


def test_this_vllm_keeps_it() -> None:
    assert check_engine()


def test_its_cpu_backend_keeps_it() -> None:
    assert check_parent(CPUAttentionBackend)


@pytest.mark.parametrize(
    ("owner", "name", "replacement", "named"),
    [
        (backend, "CommonAttentionMetadata", without("seq_lens"), "seq_lens"),
        (
            backend,
            "CommonAttentionMetadata",
            without("query_start_loc_cpu", "is_prefilling"),
            "query_start_loc_cpu, is_prefilling",
        ),
        (backend.AttentionMetadataBuilder, "build", lambda self, batch: None, "(self, batch)"),
        (
            backend.AttentionMetadataBuilder,
            "build_for_drafting",
            lambda self, draft_index: None,
            "(self, draft_index)",
        ),
        (
            backend.AttentionMetadataBuilder,
            "update_block_table",
            lambda self, metadata: None,
            "(self, metadata)",
        ),
        (backend.AttentionImpl, "forward", lambda self, query: None, "(self, query)"),
        (backend.AttentionImpl, "__init__", lambda self, heads: None, "(self, heads)"),
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
        (backend.AttentionMetadataBuilder, "build_for_cudagraph_capture"),
        (backend.AttentionMetadataBuilder, "get_cudagraph_support"),
        (backend.AttentionMetadataBuilder, "_init_reorder_batch_threshold"),
        (backend.AttentionMetadataBuilder, "reorder_batch_threshold"),
        (backend.AttentionBackend, "customize_spec"),  # until 0.28
        (registry, "AttentionBackendEnum"),
    ],
    ids=short,
)
def test_something_missing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    monkeypatch.delattr(owner, name)
    assert_refused(check_engine, name)


def parent_with(**members: Any) -> Any:
    return type("Parent", (CPUAttentionBackend,), members)


def impl_with(**members: Any) -> Callable[[], Any]:
    return staticmethod(lambda: type("Impl", (CPUAttentionBackend.get_impl_cls(),), members))


def builder_with(**members: Any) -> Callable[[], Any]:
    return staticmethod(lambda: type("Builder", (CPUAttentionBackend.get_builder_cls(),), members))


@pytest.mark.parametrize(
    ("parent", "named"),
    [
        (parent_with(forward_includes_kv_cache_update=True), "writes the KV cache itself"),
        (parent_with(is_mla=classmethod(lambda cls: True)), "latent attention"),
        (parent_with(get_impl_cls=impl_with(forward=lambda self, q: q)), "(self, q)"),
        (
            parent_with(get_impl_cls=impl_with(do_kv_cache_update=lambda self, key: None)),
            "(self, key)",
        ),
        (
            parent_with(get_impl_cls=staticmethod(lambda: backend.AttentionImpl)),
            "do_kv_cache_update",
        ),
        (
            parent_with(get_builder_cls=builder_with(build=lambda self, batch: None)),
            "(self, batch)",
        ),
    ],
    ids=short,
)
def test_parents_that_cannot_be_wrapped(parent: Any, named: str) -> None:
    verdict = check_parent(parent)
    assert not verdict
    assert named in verdict.why


def test_a_parent_that_breaks_it_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from hk_vllm.attention.backend import _wrapper_of

    monkeypatch.setattr(CPUAttentionBackend, "forward_includes_kv_cache_update", True)
    path = registry.AttentionBackendEnum.CPU_ATTN.value
    assert _wrapper_of.__wrapped__("CPU_ATTN", path) is CPUAttentionBackend
    assert "CPU_ATTN stays as it is" in caplog.text


@pytest.mark.parametrize("name", ["CPU_ATTN", "HK_FLASH_ATTN", "HK_", "nothing"])
def test_only_known_parents_have_wrappers(name: str) -> None:
    import hk_vllm.attention.backend

    with pytest.raises(AttributeError, match=name):
        getattr(hk_vllm.attention.backend, name)
