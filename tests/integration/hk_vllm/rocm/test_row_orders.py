"""Batches in every order of rows, through each ROCm backend's own builder and implementation.

Model Runner V2, the default wherever Triton is, sorts decode rows to the front and no further:
[decode, fresh, extend] is a batch like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import permutations
from random import Random
from typing import Any

import pytest
import torch

from hk_backend.engine.rows import SPECULATIVE
from hk_backend.routing.routes import RouteCounters
from tests.integration.hk_vllm.attention.batch import Batch, Layer
from tests.integration.hk_vllm.rocm.parents import LAYER_PARENTS, Parent
from tests.integration.hk_vllm.rocm.rocm_layer import rocm_layer, round_to_fp8
from tests.integration.shared.attention.rows import (
    DECODE,
    DRAFTS,
    EXTEND,
    FRESH,
    PADDING,
    SHORT_EXTEND,
    VERIFY,
    Row,
    prefill_tokens,
)

Rows = tuple[Row, ...]

LONG_EXTEND, LONG_FRESH = Row(70, 90), Row(50)
V2_ORDER: Rows = (DECODE, DECODE, LONG_FRESH, EXTEND, FRESH, LONG_EXTEND, PADDING)
SORTED: Rows = (DECODE, DECODE, LONG_EXTEND, EXTEND, FRESH)
SPECULATING: Rows = (VERIFY, FRESH, VERIFY, DECODE, SHORT_EXTEND, LONG_EXTEND)
"""As EAGLE's batches are, in no order."""
ORDERS: list[Rows] = [
    *permutations((DECODE, FRESH, EXTEND)),
    *Random(15).sample([*permutations((DECODE, VERIFY, FRESH, EXTEND, SHORT_EXTEND))], 6),
    V2_ORDER,
    SORTED,
    SPECULATING,
    (FRESH, FRESH),
]

pytestmark = pytest.mark.usefixtures("small")


def letters(rows: Rows) -> str:
    """D for decode, V for verification, S for a short extend, E, F for fresh, 0 for padding."""
    names = {DECODE: "D", VERIFY: "V", SHORT_EXTEND: "S", PADDING: "0"}
    return "".join(names.get(row, "FE"[row.cached > 0]) for row in rows)


def parent_understands(parent: Parent, rows: Rows) -> bool:
    """AITER_FA's builder takes rows behind a fresh one for fresh ones, without their prefix."""
    kinds = ["F" if row.query > 1 and not row.cached else "E" for row in rows if row.query]
    return parent.member != "ROCM_AITER_FA" or kinds == sorted(kinds)


def over(orders: Sequence[Rows]) -> list[Any]:
    """Each parent with each of the orders that vLLM has it compute."""
    return [
        pytest.param(parent, rows, id=f"{parent}-{letters(rows)}")
        for parent in LAYER_PARENTS
        for rows in orders
        if VERIFY not in rows or not parent.shuffled  # vLLM: no shuffled cache with speculation
    ]


def speculating(parent: Parent, *, wrapped: bool) -> Layer:
    """Of a server that speculates, if its parent can."""
    return rocm_layer(parent, wrapped=wrapped, drafts=0 if parent.shuffled else DRAFTS)


@pytest.mark.parametrize(("parent", "rows"), over(ORDERS), indirect=["parent"])
def test_every_order(parent: Parent, rows: Rows, counters: RouteCounters) -> None:
    """Every row is exact in any order, HK's and the parent's, and HK has all that is a prompt's."""
    Batch(speculating(parent, wrapped=True), rows).run_and_check()
    verified = sum(row.query for row in rows if row.verifies)
    assert counters.served.tokens == prefill_tokens(rows) - verified
    assert {why: tally.tokens for why, tally in counters.fallbacks.items()} == (
        {SPECULATIVE: verified} if verified else {}
    )


@pytest.mark.parametrize(
    ("parent", "rows"),
    over([(DECODE, FRESH), (FRESH, DECODE, EXTEND), (FRESH, VERIFY), SPECULATING]),
    indirect=["parent"],
)
def test_the_parents_rows_are_as_it_computes_them_alone(
    parent: Parent, rows: Rows, counters: RouteCounters
) -> None:
    """To the bit: of a batch of these rows and no others."""
    mixed = Batch(speculating(parent, wrapped=True), rows)
    output = mixed.run()[: mixed.num_tokens].split([row.query for row in rows])
    theirs = [i for i, row in enumerate(rows) if row.verifies or row == DECODE]
    alone = Batch(speculating(parent, wrapped=False), [rows[i] for i in theirs])
    for name in ("queries", "keys", "values"):
        setattr(alone, name, [getattr(mixed, name)[i] for i in theirs])
    alone.query, alone.key, alone.value = (
        torch.cat([each[-row.query :] for each, row in zip(tensors, alone.rows, strict=True)])
        for tensors in (alone.queries, alone.keys, alone.values)
    )
    alone.output = torch.full_like(alone.query, torch.nan)
    alone._write([row.cached for row in alone.rows])
    assert torch.equal(alone.run(), torch.cat([output[i] for i in theirs]))
    assert counters.served.calls == 1


@pytest.mark.parametrize(("parent", "rows"), over(ORDERS), indirect=["parent"])
def test_the_parent_alone(parent: Parent, rows: Rows) -> None:
    """Right, so agreeing with it means something; AITER_FA's own mistake is not HK's."""
    batch = Batch(speculating(parent, wrapped=False), rows)
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
    batch.run_and_check()
    assert_a_fault_shows(batch)
    assert counters.routed_share() == 1.0


@pytest.mark.parametrize("device", ["cpu", "emulated:gfx950"])
@pytest.mark.parametrize("rows", [V2_ORDER, SORTED], ids=letters)
def test_fp8_cache(
    parent: Parent,
    rows: Rows,
    device: str,
    counters: RouteCounters,
    environment: Callable[..., None],
) -> None:
    """16 values, and the scales that the parent's own kernels apply."""
    environment(HK_DEVICE=device)
    batch = Batch(rocm_layer(parent, wrapped=True, dtype=torch.bfloat16, cache_dtype="fp8"), rows)
    round_to_fp8(batch, parent)
    batch.run_and_check()
    assert_a_fault_shows(batch)
    assert counters.routed_share() == 1.0


def test_fp8_cache_of_the_parent_alone(parent: Parent) -> None:
    batch = Batch(
        rocm_layer(parent, wrapped=False, dtype=torch.bfloat16, cache_dtype="fp8"), SORTED
    )
    round_to_fp8(batch, parent)
    batch.run_and_check()
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
