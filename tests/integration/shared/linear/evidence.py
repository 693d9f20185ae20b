"""Unquantised layers of either engine: who computes them is measured before they are packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.engine.linear.contest import activations
from hk_backend.engine.linear.heads import Head
from hk_backend.engine.linear.route import is_attached
from hk_backend.ops import LinearRequest
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.shared.evidence import Bench, start_again
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.layers import (
    FORMATS,
    WIDTHS,
    K,
    assert_computes,
    left,
    loaded,
    values,
    weights,
)

KIND = f"linear bf16 {sum(WIDTHS)}x{K} from bfloat16"


def assert_same_product(bench: Bench, weight: torch.Tensor) -> None:
    """HK and the engine have computed `weight`'s product with the same activations."""
    format = FORMATS[weight.dtype]
    request = LinearRequest("cpu", weight.dtype, format, *weight.shape)
    for rows, outputs in bench.outputs.items():
        expected = reference.linear(activations(rows, request), weight, format)
        for out in outputs:
            assert largest_error(out, expected) <= tolerance(weight.dtype), rows


@pytest.mark.parametrize("dtype", FORMATS)
def test_both_sides_compute_the_layer(
    engine: LinearEngine, bench: Bench, dtype: torch.dtype
) -> None:
    loaded(engine, dtype)
    assert_same_product(bench, torch.cat(weights(dtype=dtype)))
    with pytest.raises(AssertionError):
        assert_same_product(bench, torch.cat(weights(seed=5, dtype=dtype)))


def test_rows_are_those_of_the_engine(engine: LinearEngine, bench: Bench) -> None:
    loaded(engine)
    (rows,) = bench.rows
    assert rows[:4] == (1, 8, 64, 512)
    assert len(rows) == 5


def test_the_faster_one_computes_the_layer(engine: LinearEngine, bench: Bench) -> None:
    assert is_attached(loaded(engine))
    assert routes.counters("linear").served.calls == 0, "a measured call is nobody's"


def test_a_layer_that_the_engine_computes_faster_keeps_its_weight(
    engine: LinearEngine, bench: Bench
) -> None:
    bench.let_the_engine_win()
    layer = loaded(engine)
    assert left(engine, layer).startswith(f"faster without HK: {KIND}: 1 row: HK 2 us")
    assert_computes(layer, torch.cat(weights()))


def test_a_kind_is_measured_once(
    engine: LinearEngine, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, and by one start for the next; another shape or dtype is another kind."""
    bench.let_the_engine_win()
    for _ in range(2):
        left(engine, loaded(engine))
    start_again(monkeypatch)
    left(engine, loaded(engine))
    assert len(bench.rows) == 1
    left(engine, loaded(engine, torch.float16))
    assert len(bench.rows) == 2


def test_a_weight_that_is_asked_for_by_name_is_not_measured(
    engine: LinearEngine, bench: Bench
) -> None:
    bench.let_the_engine_win()
    table = values((64, 96))
    shards: Any = {"weight": list(table.split(32))}
    config = engine.online("hk_fp8")
    layer = engine.load(engine.merged(config, torch.bfloat16, 96, [32, 32]), shards)
    assert is_attached(layer)
    assert is_attached(engine.headed(Head("fp8_e4m3fn"), table).lm_head)
    assert bench.rows == []


@pytest.mark.parametrize("variables", [{"HK_EVIDENCE": "ignore"}, {"HK_DEVICE": "cpu"}])
def test_users_decide_otherwise(
    engine: LinearEngine,
    bench: Bench,
    environment: Callable[..., None],
    variables: dict[str, str],
) -> None:
    bench.let_the_engine_win()
    environment(**variables)
    assert is_attached(loaded(engine))
    assert bench.rows == []


__all__ = [name for name in globals() if name.startswith("test_")]
