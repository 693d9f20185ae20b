"""LM heads in the format that is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.integration.hk_sglang.linear_layers import installed, rank
from tests.integration.shared.linear.heads import *  # noqa: F403


@pytest.fixture(autouse=True)
def route() -> Iterator[None]:
    with rank(), installed(), torch.no_grad():
        yield
