"""Whether a layer is served on a GPU: what is known of HK's time and of stock's, at the edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import nextafter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hk_backend.config import get_config
from hk_backend.engine import losses as evidence
from hk_backend.engine.linear import judgement, stock
from hk_backend.engine.linear.judgement import (
    DECODE,
    JUDGED,
    Layer,
    Point,
    judge,
    layer_of,
    name_of,
    points,
)
from hk_backend.engine.linear.stock import STOCK, UNTUNED, Known, Stock, Untuned
from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.gemm_formats import LAYERS, Format, family
from hk_backend.kernels.gemm_plan import PLANNED, Candidate
from hk_backend.kernels.tuning import Tuning
from hk_backend.kernels.tuning_fields import MEASURED, MODELLED
from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import SERVED, Verdict
from tests.kernels.tuning_lines import UNITS, Line, configured, line, measured, write

N, K, MANY = 4096, 8192, max(JUDGED)
FAMILY = family(catalogue("gfx950"), LAYERS["bf16"])
HUGE = 1e6


def layer(tuning: Tuning) -> Layer:
    return Layer("bf16", N, K, FAMILY, UNITS, tuning)


def ours(m: int, microseconds: float, of: Callable[..., Line] = measured, **more: Any) -> Line:
    return of(FAMILY, m, N, K, microseconds=microseconds, **more)


MEASURED_DECODE = (ours(1, 10.0), ours(DECODE, 10.0))


@dataclass
class World:
    """What is known: of stock, and in the file of HK_TUNING."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    lines: tuple[Line, ...] = field(default=MEASURED_DECODE)

    def publish(self, *, untuned: bool = False, **microseconds: float) -> None:
        """`m16=11.0`: stock takes as long with 16 rows."""
        times = {int(name[1:]): time for name, time in microseconds.items()}
        table = (Stock("bf16", N, K, "theirs", "a paper", times),)
        self.monkeypatch.setattr(stock, "STOCK", table)
        said = Untuned(("bf16",), ((N, K),), "a survey")
        self.monkeypatch.setattr(stock, "UNTUNED", (said,) if untuned else ())

    def judge(self) -> Verdict:
        with configured(write(self.path, *self.lines)):
            return judge(layer(get_config().tuning))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path / "times.jsonl", monkeypatch)


def test_served_where_hk_s_time_and_a_tenth_is_at_most_stock_s(world: World) -> None:
    world.publish(m1=11.0, m16=11.0, m4096=HUGE)
    assert world.judge() == SERVED
    world.publish(m1=11.0, m16=10.99, m4096=HUGE)
    assert world.judge().why == (
        f"faster without HK: bf16 {N}x{K}, M=16: HK takes 10 us (measured), stock 10.99 us "
        "(theirs, a paper): HK's time x 1.1 must be at most stock's"
    )


def test_a_tenth_is_not_rounded() -> None:
    """1.1 as a float is more than 1.1: 1.1 * 10 > 11 for some multiples."""
    entry = FAMILY[0]
    for times in range(1, 200):
        candidate = Candidate(entry, 1, 10.0 * times, MEASURED)
        assert not Point(1, candidate, Known(11.0 * times, "")).is_slower
        assert Point(1, candidate, Known(nextafter(11.0 * times, 0), "")).is_slower


def test_many_rows_may_be_modelled_or_planned(world: World) -> None:
    """For these a model may decide, both ways."""
    world.publish(m1=HUGE, m4096=11.0)
    world.lines = (*MEASURED_DECODE, ours(MANY, 10.0, line))
    assert world.judge() == SERVED
    world.lines = (*MEASURED_DECODE, ours(MANY, 10.01, line))
    assert f"HK takes 10.01 us ({MODELLED}), stock 11 us" in world.judge().why
    world.lines = MEASURED_DECODE
    planned = layer(Tuning()).ours(MANY).microseconds
    assert f"HK takes {planned:.4g} us ({PLANNED}), stock 11 us" in world.judge().why
    world.publish(m1=HUGE, m4096=1.11 * planned)
    assert world.judge() == SERVED


@pytest.mark.parametrize("untuned", [False, True])
@pytest.mark.parametrize("source", [PLANNED, MODELLED])
def test_up_to_16_rows_no_model_decides(world: World, source: str, untuned: bool) -> None:
    """Neither for HK nor against it."""
    modelled = (ours(DECODE, 10.0, line),) if source == MODELLED else ()
    world.lines = (ours(1, 10.0), *modelled)
    for time in (HUGE, 0.001):
        world.publish(m1=HUGE, m16=time, m4096=HUGE, untuned=untuned)
        said = world.judge().why
        assert said.startswith(f"no evidence: bf16 {N}x{K}, M=16: HK takes ")
        assert f"us ({source}), stock {time:.4g} us (theirs, a paper): up to 16 rows" in said
        assert said.endswith("HK_TUNING); HK_EVIDENCE=ignore serves it")


@pytest.mark.parametrize(
    ("known", "asked", "which"),
    [({}, 1, "up to 16"), ({"m4096": HUGE}, 1, "up to 16"), ({"m1": HUGE}, 4096, "more than 16")],
)
def test_stock_must_be_known_for_few_rows_and_for_many(
    world: World, known: dict[str, float], asked: int, which: str
) -> None:
    world.publish(**known)
    said = world.judge().why
    assert said.startswith(f"no evidence: bf16 {N}x{K}, M={asked}: HK takes ")
    assert "stock is not known: a figure " in said
    assert which in said


def test_what_nobody_tuned_is_served_but_for_what_is_known(world: World) -> None:
    world.publish(untuned=True)
    assert world.judge() == SERVED
    world.publish(untuned=True, m256=0.001)
    assert world.judge().why.startswith(f"faster without HK: bf16 {N}x{K}, M=256: ")
    world.publish(untuned=True)
    world.lines = ()
    assert "stock is untuned (a survey): up to 16 rows must be measured" in world.judge().why


def test_stock_as_measured_here_counts_before_what_is_published(world: World) -> None:
    world.publish(m1=HUGE, m16=HUGE, m4096=HUGE)
    slower = ours(1, 10.0, stock="torch", stock_microseconds=10.9)
    world.lines = (slower, ours(DECODE, 10.0))
    assert "stock 10.9 us (torch, measured here)" in world.judge().why
    world.publish(m1=0.001, m4096=HUGE)
    world.lines = ({**slower, "stock_microseconds": 11}, ours(DECODE, 10.0))
    assert world.judge() == SERVED


def request(format: str, activations: str = "none", scales: str | None = None) -> LinearRequest:
    return LinearRequest("cuda", torch.bfloat16, format, N, K, activations, scales)


FP8 = "fp8_e4m3fn"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (request("bf16"), "bf16"),
        (request("fp16"), "fp16"),
        (request(FP8, "token", "channel"), "fp8_channel"),
        (request(FP8, "token", "tensor"), "fp8_channel"),
        (request(FP8, "tensor", "channel"), "fp8_channel"),
        (request(FP8, "tensor", "tensor"), "fp8_tensor"),
        (request(FP8, "token_block", "block"), "fp8_block"),
        (request(FP8, "token_block", "channel"), "fp8_block"),
        (request(FP8, "none", "channel"), "fp8_weight_only"),
        (request(FP8, "none", "block"), "fp8_weight_only"),
    ],
)
def test_kinds_of_layers(asked: LinearRequest, name: str) -> None:
    assert name_of(asked) == name
    assert name in LAYERS


@pytest.mark.parametrize(
    ("dtype", "scales", "of"),
    [
        (torch.bfloat16, "channel", ("bf16", "e4m3", "vectors")),
        (torch.float16, "tensor", ("f16", "e4m3", "vectors")),
        (torch.float16, "block", ("f16", "e4m3", "blocks")),
    ],
)
def test_weights_alone_in_fp8_have_the_kernels_of_their_activations(
    dtype: torch.dtype, scales: str, of: tuple[str, str, str]
) -> None:
    asked = LinearRequest("cuda", dtype, FP8, N, K, "none", scales)
    layer = layer_of(asked, catalogue("gfx950"), UNITS, Tuning())
    assert layer.family == family(catalogue("gfx950"), Format(*of))
    assert not layer.family or layer.of == of


@pytest.mark.parametrize("environment", [{}, {"HK_DEVICE": "hip"}, {"HK_EVIDENCE": "ignore"}])
@pytest.mark.parametrize("kind", ["hip", "emulated", "cpu"])
def test_only_a_gpu_is_judged(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, environment: dict[str, str]
) -> None:
    """The user's word decides against it, a named device does not."""
    device = SimpleNamespace(
        name=f"{kind}:gfx950",
        catalogue=catalogue("gfx950"),
        compute_units=lambda index: UNITS,
        memory=SimpleNamespace(current_index=lambda: 0),
    )
    monkeypatch.setattr(evidence, "device_for", lambda kind: device)
    world.publish(m1=HUGE, m4096=HUGE)
    for lines, known in ((MEASURED_DECODE, True), ((), False)):
        with configured(write(world.path, *lines), **environment):
            served = known or kind != "hip" or get_config().evidence == "ignore"
            assert bool(evidence.of_linear_on_gpu(request("bf16"))) is served


def test_the_table_is_of_layers_that_there_are() -> None:
    listed = [(each.format, each.n, each.k, each.kernel) for each in STOCK]
    assert len(set(listed)) == len(listed)
    for each in STOCK:
        assert each.format in LAYERS
        assert each.source
        assert each.times
        for m, time in each.times.items():
            assert time > 0
            if m in each.tflops:
                flops = 2 * m * each.n * each.k
                assert flops / time / 1e6 == pytest.approx(each.tflops[m], rel=1e-12)
    for untuned in UNTUNED:
        assert set(untuned.formats) <= set(LAYERS)


def test_the_best_published_kernel_is_what_stock_takes() -> None:
    """Of BF16 8192^3 there are two: hipBLASLt at 1575, AITER at 1591 TFLOP/s."""
    found = stock.known("bf16", 8192, 8192)[8192]
    assert found.microseconds == pytest.approx(2 * 8192**3 / 1591e6)
    assert found.source.startswith("AITER, ")


@pytest.mark.parametrize("format", sorted(LAYERS))
def test_points_are_in_the_order_of_rows(format: str) -> None:
    kernels = family(catalogue("gfx950"), LAYERS[format])
    for each in STOCK:
        if kernels and each.format == format:
            found = points(Layer(format, each.n, each.k, kernels, UNITS, Tuning()))
            rows = [point.m for point in found]
            assert rows == sorted({*judgement.JUDGED, *stock.known(format, each.n, each.k)})
