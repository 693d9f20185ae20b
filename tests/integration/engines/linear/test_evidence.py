"""Unquantised layers of either engine: who computes them is measured before they are packed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hk_backend import reference
from hk_backend.engine.linear.contest import activations
from hk_backend.engine.linear.heads import KEPT_HEAD, Head
from hk_backend.engine.linear.route import is_attached
from hk_backend.engine.strict import StrictError
from hk_backend.ops import LinearRequest
from hk_backend.routing.routes import routes
from hk_backend.routing.shadow_check import largest_error, tolerance
from tests.integration.shared.evidence import Bench, start_again
from tests.integration.shared.linear.engine import LinearEngine
from tests.integration.shared.linear.layers import (
    FORMATS,
    KIND,
    assert_computes,
    left,
    loaded,
    values,
    weights,
)

pytestmark = pytest.mark.usefixtures("fresh_linear_route")


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
    assert is_attached(loaded(engine, dtype)), "HK is faster"
    assert routes.counters("linear").served.calls == 0, "a measured call is nobody's"
    (rows,) = bench.rows
    assert rows[:4] == (1, 8, 64, 512)
    assert len(rows) == 5, "the engine's limit is the last"
    assert_same_product(bench, torch.cat(weights(dtype=dtype)))
    with pytest.raises(AssertionError):
        assert_same_product(bench, torch.cat(weights(seed=5, dtype=dtype)))


def test_a_layer_that_the_engine_computes_faster_keeps_its_weight(
    engine: LinearEngine, bench: Bench, environment: Callable[..., None]
) -> None:
    bench.let_the_engine_win()
    layer = loaded(engine)
    assert left(engine, layer).startswith(f"faster without HK: {KIND}: 1 row: HK 2 us")
    assert_computes(layer, torch.cat(weights()))
    environment(HK_STRICT="1")
    with pytest.raises(StrictError, match="gate_up would fall back: faster without HK"):
        engine.account(torch.nn.ModuleDict({"gate_up": layer}))


@pytest.mark.parametrize("by_hk", [True, False])
def test_new_weights_are_not_measured(
    engine: LinearEngine,
    bench: Bench,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    by_hk: bool,
) -> None:
    """A layer stays with whom it is, even if nobody knows the times any more, and where another
    number of threads would be another machine."""
    if not by_hk:
        bench.let_the_engine_win()
    layer = loaded(engine)
    assert is_attached(layer) is by_hk
    start_again(monkeypatch)
    environment(HK_CACHE_DIR=str(tmp_path / "empty"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    bench.ours, bench.theirs = bench.theirs, bench.ours
    engine.reload(layer, {"weight": weights(seed=5)})
    assert is_attached(layer) is by_hk
    assert len(bench.rows) == 1
    assert_computes(layer, torch.cat(weights(seed=5)))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("by_hk", [True, False])
def test_a_head(engine: LinearEngine, bench: Bench, tied: bool, by_hk: bool) -> None:
    """Both compute the logits; the faster one does for requests."""
    if not by_hk:
        bench.let_the_engine_win()
    table = values((300, 96))
    model = engine.headed(KEPT_HEAD, table, tied=tied)
    request = LinearRequest("cpu", torch.bfloat16, "bf16", *table.shape)
    [rows] = bench.rows
    for each in rows:
        expected = reference.linear(activations(each, request), table, "bf16")
        for out in bench.outputs[each]:
            assert largest_error(out[:, : len(table)], expected) <= tolerance(torch.bfloat16)
    assert is_attached(model.lm_head) is by_hk
    if not by_hk:
        engine.account(model)
        [why] = routes.counters("linear").layers_left
        assert re.match(r"faster without HK: linear bf16 \d+x96 from bfloat16, logits: ", why)
    x = values((3, 96), seed=9)
    logits = engine.logits(model, x)[:, : len(table)]
    assert largest_error(logits, reference.linear(x, table, "bf16")) <= tolerance(torch.bfloat16)


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
