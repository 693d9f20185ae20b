"""The declared operators, and the document that lists them."""

from __future__ import annotations

from pathlib import Path

import torch

from hk_backend import operators, ops
from hk_backend.ops.registry import OPERATORS, listing

DOCUMENT = Path(__file__).parents[2] / "docs" / "operator.md"


def test_the_document_has_the_listing() -> None:
    assert listing() in DOCUMENT.read_text()


def test_every_public_operator_is_declared() -> None:
    """Each has a part on the cpu device; torch knows those that a compiler may meet."""
    declared = {each.function for each in OPERATORS.values()}
    assert {getattr(ops, name) for name in OPERATORS} == declared
    for name in OPERATORS:
        assert "cpu" in OPERATORS[name].devices, name
        assert hasattr(torch.ops.hk_backend, name) or name == "pack_weight"


def test_a_part_that_does_not_exist() -> None:
    assert operators.part("devices.hip", "look_up") is None
    assert operators.part("no.such.room", "linear") is None
    assert operators.names("no.such.room") == []
