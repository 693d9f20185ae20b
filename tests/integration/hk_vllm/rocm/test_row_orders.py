"""Batches in every order of rows, through each ROCm backend's own builder and implementation.

Model Runner V2, the default wherever Triton is, sorts decode rows to the front and no further:
[decode, fresh, extend] is a batch like any other.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import permutations
from typing import Any

import pytest
import torch
from hk_vllm.attention.rows import DECODES_BEHIND

from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import EXTEND, Batch
from tests.integration.hk_vllm.rocm.parents import Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer, round_to_fp8
from tests.integration.shared.attention.rows import DECODE, FRESH, PADDING, Row

Rows = tuple[Row, ...]

LONG_EXTEND, LONG_FRESH = Row(70, 90), Row(50)
V2_ORDER: Rows = (DECODE, DECODE, LONG_FRESH, EXTEND, FRESH, LONG_EXTEND, PADDING)
SORTED: Rows = (DECODE, DECODE, LONG_EXTEND, EXTEND, FRESH)
ORDERS: list[Rows] = [*permutations((DECODE, FRESH, EXTEND)), V2_ORDER, SORTED, (FRESH, FRESH)]

pytestmark = pytest.mark.usefixtures("small")


def letters(rows: Rows) -> str:
    """D for decode, E for extend, F for fresh, 0 for padding."""
    return "".join("0D"[row.query] if row.query < 2 else "FE"[row.cached > 0] for row in rows)


def decodes_lead(rows: Rows) -> bool:
    return "D" not in letters(rows).lstrip("D")


def parent_understands(parent: Parent, rows: Rows) -> bool:
    """AITER_FA's builder takes extends behind a fresh row for fresh ones, without their prefix."""
    kinds = letters(rows).strip("0")
    return parent.member != "ROCM_AITER_FA" or list(kinds) == sorted(kinds)


@pytest.mark.parametrize("rows", ORDERS, ids=letters)
def test_every_order(parent: Parent, rows: Rows, counters: RouteCounters) -> None:
    """HK's rows are exact in any order; a batch that HK leaves is what the parent makes of it."""
    batch = Batch(rocm_layer(parent, wrapped=True), rows)
    output = batch.run()
    prefill = sum(row.query for row in rows if row.query > 1)
    if decodes_lead(rows):
        batch.check()
        assert (counters.served.tokens, dict(counters.fallbacks)) == (prefill, {})
    else:
        alone = Batch(rocm_layer(parent, wrapped=False), rows).run()
        torch.testing.assert_close(output, alone, rtol=0, atol=0, equal_nan=True)
        assert counters.served.tokens == 0
        assert counters.fallbacks[DECODES_BEHIND].tokens == prefill


@pytest.mark.parametrize("rows", [*filter(decodes_lead, ORDERS)], ids=letters)
def test_the_parent_alone(parent: Parent, rows: Rows) -> None:
    """Right, so agreeing with it means something; AITER_FA's own mistake is not HK's."""
    batch = Batch(rocm_layer(parent, wrapped=False), rows)
    batch.run()
    if parent_understands(parent, rows):
        batch.check()
    else:
        with pytest.raises(AssertionError):
            batch.check()


@pytest.mark.parametrize("rows", [V2_ORDER, SORTED], ids=letters)
def test_half_precision(parent: Parent, rows: Rows, counters: RouteCounters) -> None:
    """x, the channels that a ROCm cache keeps together, is 16 bytes: 8 values, not 4."""
    batch = Batch(rocm_layer(parent, wrapped=True, dtype=torch.bfloat16), rows)
    batch.run()
    batch.check()
    assert_a_fault_shows(batch)
    assert counters.routed_share() == 1.0


@pytest.mark.parametrize("rows", [V2_ORDER, SORTED], ids=letters)
def test_fp8_cache(parent: Parent, rows: Rows, counters: RouteCounters) -> None:
    """16 values, and the scales that the parent's own kernels apply."""
    batch = Batch(rocm_layer(parent, wrapped=True, dtype=torch.bfloat16, fp8=True), rows)
    round_to_fp8(batch, parent)
    batch.run()
    batch.check()
    assert_a_fault_shows(batch)
    assert counters.routed_share() == 1.0


def test_fp8_cache_of_the_parent_alone(parent: Parent) -> None:
    batch = Batch(rocm_layer(parent, wrapped=False, dtype=torch.bfloat16, fp8=True), SORTED)
    round_to_fp8(batch, parent)
    batch.run()
    batch.check()
    assert_a_fault_shows(batch)


def assert_a_fault_shows(batch: Batch) -> None:
    """Outputs 2% too large are past the bounds."""
    batch.output *= 1.02
    with pytest.raises(AssertionError, match="out of bounds"):
        batch.check()


def test_metadata_is_what_the_parent_builds(parent: Parent) -> None:
    """Beside HK's plan, field by field, though the parent has built twice."""
    found = Batch(rocm_layer(parent, wrapped=True), V2_ORDER).build()
    expected = Batch(rocm_layer(parent, wrapped=False), V2_ORDER).build()
    assert isinstance(found, type(expected))
    for field in fields(expected):
        ours, theirs = getattr(found, field.name), getattr(expected, field.name)
        assert same(ours, theirs), f"{field.name}: {ours}, expected {theirs}"
    assert type(found) is type(expected)


def same(found: Any, expected: Any) -> bool:
    """Equal, tensors by shape and value (a workspace is only memory: by shape)."""
    if isinstance(expected, torch.Tensor):
        workspace = expected.is_floating_point() and expected.numel() > 1
        return found.shape == expected.shape and (workspace or torch.equal(found, expected))
    if hasattr(expected, "__dataclass_fields__"):
        names = [field.name for field in fields(expected)]
        return all(same(getattr(found, name), getattr(expected, name)) for name in names)
    return bool(found == expected)
