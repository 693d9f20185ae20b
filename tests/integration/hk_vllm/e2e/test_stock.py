"""Without HK_BACKEND vLLM is stock, bit for bit, and nothing of HK is even imported."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.engine import Reader
from tests.integration.shared.e2e.singles import assert_stock


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", ["backend-unset", "backend-0"])
def test_bit_for_bit(name: str, served: Reader) -> None:
    assert_stock(served(name), served("without-plugin"))
