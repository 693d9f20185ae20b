"""HK_CHECK's comparison passes rounding and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.ops import PagedKV, attention_prefill
from hk_backend.routing import shadow_check
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import ShadowCheck, tolerance
from hk_backend.terms.attention_arguments import AttentionArguments
from hk_backend.terms.verdict import Verdict

HEADS, KV_HEADS, SIZE, BLOCK = 4, 2, 64, 16
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _fresh_counters() -> Iterator[None]:
    routes.reset()
    yield
    routes.reset()


def request_of(dtype: torch.dtype, paged: bool, **mask: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    """Three rows, 5, 0 and 40 queries; paged, with 12, 0 and 60 tokens cached."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    starts = torch.tensor([0, 5, 5, 45], dtype=torch.int32)
    query = random(48, HEADS, SIZE)
    if not paged:
        keys = {"key": random(48, KV_HEADS, SIZE), "value": random(48, KV_HEADS, SIZE)}
        return query, {"query_start_loc": starts, **keys, **mask}
    cache = random(20, KV_HEADS, BLOCK, 2 * SIZE)
    blocks = torch.randperm(20, generator=generator)[:18].view(3, 6).int()
    lengths = torch.tensor([17, 0, 100], dtype=torch.int32)
    return query, {
        "query_start_loc": starts,
        "paged_kv": PagedKV.from_packed(cache),
        "block_table": blocks[:, [0, 1, 2, 3, 4, 5, 0]],
        "seq_lens": lengths,
        **mask,
    }


def compute(query: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor:
    out = torch.full_like(query, 7.0)
    attention_prefill(query, out=out, **arguments)
    return out


def checked(out: torch.Tensor, query: torch.Tensor, arguments: dict[str, Any]) -> Verdict:
    """The verdict on `out` as the output of a call with these arguments."""
    of = AttentionArguments(query=query, out=out, **arguments)
    return ShadowCheck("attention", 1).attention(of)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("paged", [False, True], ids=["packed", "paged"])
@pytest.mark.parametrize(
    "mask",
    [
        {},
        {"sliding_window": 7},
        {"logits_soft_cap": 1.0, "scale": 0.5},
        {"alibi_slopes": torch.tensor([0.5, 0.25, 0.1, 0.0])},
        {"sinks": torch.tensor([1.0, 2.0, -1.0, 0.0])},
    ],
    ids=lambda mask: "-".join(mask) or "plain",
)
def test_the_operator_passes(dtype: torch.dtype, paged: bool, mask: dict[str, Any]) -> None:
    query, arguments = request_of(dtype, paged, **mask)
    verdict = checked(compute(query, arguments), query, arguments)
    assert verdict, verdict.why
    counters = routes.counters("attention")
    assert counters.checked_calls == 1
    assert 0 < counters.max_check_error <= tolerance(dtype)


DAMAGE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scaled": lambda out: out.mul_(1.02),
    "one head swapped": lambda out: out[:45].copy_(out[:45, [1, 0, 2, 3]]),
    "one token zero": lambda out: out[44].zero_(),
    "one number lost": lambda out: out[3, 2, 10].fill_(torch.nan),
    "one number infinite": lambda out: out[3, 2, 10].fill_(torch.inf),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("paged", [False, True], ids=["packed", "paged"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_seen(dtype: torch.dtype, paged: bool, damage: str) -> None:
    query, arguments = request_of(dtype, paged)
    out = compute(query, arguments)
    DAMAGE[damage](out)
    assert not checked(out, query, arguments)
    assert routes.counters("attention").max_check_error > tolerance(dtype)


def test_numbers_that_the_reference_has_not_either() -> None:
    """A model that computes NaN is not HK's error."""
    query, arguments = request_of(torch.float32, paged=False)
    query[2] = torch.nan
    out = compute(query, arguments)
    out[45:] = torch.nan  # rows of nobody
    assert out[2].isnan().all()
    assert checked(out, query, arguments)


@pytest.mark.parametrize("paged", [False, True], ids=["packed", "paged"])
def test_pieces_are_the_whole(paged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long request is checked a few rows at a time, against the same numbers."""
    query, arguments = request_of(torch.float32, paged, sliding_window=30)
    of = AttentionArguments(query=query, out=query.clone(), **arguments)
    whole, _ = reference.attention_prefill(of)
    of.out.copy_(whole)
    monkeypatch.setattr(shadow_check, "SCORES_AT_ONCE", HEADS * 100)
    pieces = list(shadow_check._pieces(of))
    assert len(pieces) > 10
    for found, expected in pieces:
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    assert sum(len(found) for found, _ in pieces) == 45


def test_share_of_calls() -> None:
    def drawn(share: float) -> list[bool]:
        check = ShadowCheck("attention", share)
        return [check.due(lambda: False) for _ in range(20_000)]

    assert not any(drawn(0))
    assert all(drawn(1))
    assert drawn(0.05) == drawn(0.05)
    assert 800 < sum(drawn(0.05)) < 1200
    # not every n-th call: with 30 layers and n = 100 that would be three layers for ever
    assert {call % 30 for call, due in enumerate(drawn(0.01)) if due} == set(range(30))
    assert not ShadowCheck("linear", 0).due(lambda: pytest.fail("asked for captures"))


def test_infinity_is_right_where_the_dtype_ends() -> None:
    exact = torch.tensor([[1e5, -2e5, 65519.0, 3.0]], dtype=torch.float64)
    check = ShadowCheck("linear", 1.0)
    assert check.linear(exact.half(), exact, "a layer")
    assert not check.linear(-exact.half(), exact, "a layer")
    past = exact[:, :2]  # nothing but overflow: its sign is all that there is to compare
    assert check.linear(past.half(), past, "a layer")
    assert not check.linear(-past.half(), past, "a layer")
    assert not check.linear(past.half().abs(), past, "a layer")
    early = torch.tensor([[1e5, -2e5, 100.0, 3.0]], dtype=torch.float64)
    assert not check.linear(exact.half() * torch.tensor([1, 1, 1e9, 1]), early, "a layer")


def test_a_capture_cannot_be_seen(caplog: pytest.LogCaptureFixture) -> None:
    """Reading from the device would end it: such calls are counted, and said once per route."""
    for route in ("linear", "attention"):
        check, plain = (ShadowCheck(route, 0.5) for _ in range(2))
        assert not any(check.due(lambda: True) for _ in range(20))
        counters = routes.counters(route)
        assert (counters.unchecked_calls, counters.checked_calls) == (20, 0)
        again = ShadowCheck(route, 0.5)  # another layer's
        assert not again.due(lambda: True)
        drawn = [[of.due(lambda: False) for _ in range(50)] for of in (check, plain)]
        assert drawn[0] == drawn[1], "they are not drawn from"
    said = [message for message in caplog.messages if "cannot compare" in message]
    assert len(said) == 2
    assert "HK_CHECK cannot compare what route linear computes in graphs" in said[0]
