"""Fixtures for the tests of vLLM's attention: a layer, and a parent that only notes its calls."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

from tests.integration.hk_vllm.attention.batch import Layer
from tests.integration.hk_vllm.attention.engine import HK_CPU


@pytest.fixture(autouse=True)
def all_are_small(small: None) -> None:
    """Every test of this folder computes batches of a few tokens."""


@pytest.fixture
def layer() -> Layer:
    return Layer(HK_CPU)


@pytest.fixture
def parent_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The metadata of each call of the parent's forward, which computes nothing."""
    calls: list[Any] = []

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(args[5])
        return args[6]

    monkeypatch.setattr(CPUAttentionBackendImpl, "forward", forward)
    return calls
