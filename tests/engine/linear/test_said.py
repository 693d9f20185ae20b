"""What the log says of layers: what is left to the engine, and what an emulated GPU would take."""

from __future__ import annotations

import logging

import pytest
import torch

from hk_backend.engine.evidence import ALONE, MODELLED, Contest
from hk_backend.engine.evidence.decision import duration
from hk_backend.engine.linear.contest import decide_linear
from hk_backend.engine.linear.modelled import ROWS, say_modelled
from hk_backend.kernels.catalogue import catalogue
from hk_backend.kernels.gemm_choice import planned
from hk_backend.kernels.gemm_formats import LAYERS, family
from hk_backend.ops import LinearRequest
from tests.measurements.launches import EMULATED, UNITS, launch, timed

N, K = 256, 512
CASES = {
    "bf16": LinearRequest("cpu", torch.bfloat16, "bf16", N, K),
    "fp16": LinearRequest("cpu", torch.float16, "fp16", N, K),
    "fp8_channel": LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", N, K, "token", "channel"),
    "fp8_block": LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", N, K, "token_block", "block"),
    "fp8_weight_only": LinearRequest("cpu", torch.bfloat16, "fp8_e4m3fn", N, K, "none", "channel"),
}


def never() -> Contest:
    pytest.fail("a contest on an emulated GPU")


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hk_backend")
    say_modelled.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_the_layer_is_served_with_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with timed(HK_DEVICE=EMULATED):
        for _ in range(2):
            assert decide_linear("vLLM", "theirs", CASES[name], never, ALONE).verdict
    (line,) = caplog.messages
    kernels = family(catalogue("gfx950"), LAYERS[name])
    times = (planned(kernels, rows, N, K, UNITS).microseconds for rows in ROWS)
    by_rows = ", ".join(f"{m}: {duration(time)}" for m, time in zip(ROWS, times, strict=True))
    assert line.endswith(f" is served: {MODELLED}; HK by rows: {by_rows}")


def test_a_timed_launch_is_named(caplog: pytest.LogCaptureFixture) -> None:
    kernels = family(catalogue("gfx950"), LAYERS["bf16"])
    with timed(launch(kernels, 64, N, K, microseconds=77.0), HK_DEVICE=EMULATED):
        decide_linear("vLLM", "theirs", CASES["bf16"], never, ALONE)
    assert "64: 77 us" in caplog.text


def test_what_is_measured_or_given_has_no_such_line(caplog: pytest.LogCaptureFixture) -> None:
    with timed(HK_DEVICE=EMULATED, HK_EVIDENCE="ignore"):
        decide_linear("vLLM", "theirs", CASES["bf16"], never, ALONE)
    with timed(HK_DEVICE="cpu"):
        decide_linear("vLLM", "theirs", CASES["bf16"], never, ALONE)
    assert not caplog.messages
