"""Without HK_BACKEND vLLM is stock, bit for bit, and nothing of HK is even imported."""

from __future__ import annotations

import pytest

from tests.integration.shared.e2e.compare import assert_not_loaded
from tests.integration.shared.e2e.engine import Reader


@pytest.mark.engine_proof
@pytest.mark.parametrize("name", ["backend-unset", "backend-0"])
def test_bit_for_bit(name: str, served: Reader) -> None:
    """The same floats as vLLM that never heard of the plugin; nothing said, nothing imported."""
    found, expected = served(name), served("without-plugin")
    assert_not_loaded(found.only)
    assert found.only.rounds[-1].workers[0].modules, "the plugin's entry point never ran"
    assert expected.only.rounds[-1].workers[0].modules == []
    for ours, theirs in zip(found.only.rounds, expected.only.rounds, strict=True):
        assert ours.answers == theirs.answers
    assert not found.lines("hk_backend")
