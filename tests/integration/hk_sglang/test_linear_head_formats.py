"""LM heads in the format that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from hk_sglang.linear.head import why_table_stays

from hk_backend.engine.linear.shared_table import DRAFTS, LORA
from tests.integration.hk_sglang.linear_layers import installed, rank
from tests.integration.shared.linear.heads import *  # noqa: F403


@pytest.mark.parametrize(
    ("flags", "why"),
    [({}, ""), ({"speculative_algorithm": "EAGLE"}, DRAFTS), ({"enable_lora": True}, LORA)],
)
def test_who_may_read_a_table(flags: dict[str, object], why: str) -> None:
    none = {"speculative_algorithm": None, "enable_lora": None, "lora_paths": None}
    assert why_table_stays(SimpleNamespace(**none | flags)) == why


@pytest.fixture(autouse=True)
def route() -> Iterator[None]:
    with rank(), installed(), torch.no_grad():
        yield
