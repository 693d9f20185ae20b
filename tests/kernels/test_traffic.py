"""Memory-bound kernels compute the right results, in the emulator with every check on."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.catalogue import MEASURING
from tests.lab.timing import mi350x, traffic
from tests.lab.timing.traffic import Problem

Array = NDArray[Any]
RANDOM = np.random.default_rng(0)
BF16_STEP = 2.0**-8


def normal(array: Array, dtype: Any = ml_dtypes.bfloat16) -> Array:
    """Fills a buffer with normal numbers, and returns them in float64 as stored."""
    values = RANDOM.standard_normal(array.view(dtype).shape).astype(dtype)
    array.view(dtype)[...] = values
    return values.astype(np.float64)


def floats(array: Array) -> Array:
    return array.view(ml_dtypes.bfloat16).astype(np.float64)


def run(kernel: str, problem: Problem) -> None:
    entry = catalogue("gfx950", MEASURING).select("traffic", kernel=kernel)
    assert isinstance(entry, KernelEntry)
    launch = traffic.launch(entry, problem)
    for name in problem.outputs:
        problem.arrays[name].view(np.uint8)[...] = 0xFF  # NaN
    where = (launch.kernel, list(launch.grid), [launch.block], launch.arguments)
    report = launch.machine.launch(*where, dynamic_lds=launch.dynamic_lds)
    assert not report.findings, report.findings[0].message
    assert report.counters.bytes["global_write"] == problem.written


def test_gemv() -> None:
    problem = traffic.PROBLEMS["gemv_bf16"](n=32, k=4096)
    x, weight = (normal(problem.arrays[name]) for name in ("x", "weight"))
    run("gemv_bf16", problem)
    expected = weight.reshape(32, 4096) @ x.reshape(4096)
    np.testing.assert_allclose(problem.arrays["out"], expected, atol=1e-3)


def test_gemv_of_fp8() -> None:
    problem = traffic.PROBLEMS["gemv_fp8"](n=32, k=4096)
    x, weight = (normal(problem.arrays[n], ml_dtypes.float8_e4m3fn) for n in ("x", "weight"))
    of_x, scales = (problem.arrays[n].view(np.float32) for n in ("x_scales", "weight_scales"))
    of_x[...], scales[...] = 0.5, RANDOM.random(scales.shape)
    run("gemv_fp8", problem)
    expected = 0.5 * scales.reshape(32) * (weight.reshape(32, 4096) @ x.reshape(4096))
    np.testing.assert_allclose(problem.arrays["out"], expected, atol=1e-3)


def test_decode() -> None:
    batch, keys, kv_heads = 2, 512, 2
    problem = traffic.decode(batch=batch, keys=keys, kv_heads=kv_heads, splits=2)
    query, key, value = (normal(problem.arrays[name]) for name in ("query", "key", "value"))
    run("decode", problem)
    found = problem.arrays["out"].sum(2) / problem.arrays["sums"].sum(2)[..., None]
    table = problem.arrays["block_table"]
    for request in range(batch):
        k, v = (cache[table[request]].reshape(keys, kv_heads, 128) for cache in (key, value))
        weights = np.exp(np.einsum("ghd,kgd->ghk", query[request], k) * 128**-0.5)
        expected = np.einsum("ghk,kgd->ghd", weights / weights.sum(-1, keepdims=True), v)
        # the weights are rounded to bf16, and their sum is not
        np.testing.assert_allclose(found[request], expected, atol=2 * BF16_STEP)


def test_rotary() -> None:
    problem = traffic.rotary(heads=3, tokens=64)
    x = normal(problem.arrays["x"]).reshape(3, 64, 128)
    cosine, sine = (normal(problem.arrays[name]).reshape(64, 64) for name in ("cosine", "sine"))
    run("rotary", problem)
    low, high = x[..., :64], x[..., 64:]
    expected = np.concatenate([low * cosine - high * sine, high * cosine + low * sine], -1)
    found = floats(problem.arrays["out"]).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=BF16_STEP, atol=1e-5)


def test_layernorm() -> None:
    """The comparison is without dropping: the kernel draws in a way of its own."""
    problem = traffic.layernorm(rows=8, drop=0)
    x, residual = (normal(problem.arrays[n]).reshape(8, 2048) for n in ("x", "residual"))
    weight, bias = (normal(problem.arrays[n]).reshape(2048) for n in ("weight", "bias"))
    run("layernorm", problem)
    total = residual + x
    found = floats(problem.arrays["sum"]).reshape(total.shape)
    np.testing.assert_allclose(found, total, rtol=BF16_STEP, atol=1e-5)
    mean, variance = total.mean(1, keepdims=True), total.var(1, keepdims=True)
    expected = (total - mean) / np.sqrt(variance + 1e-5) * weight + bias
    found = floats(problem.arrays["out"]).reshape(total.shape)
    np.testing.assert_allclose(found, expected, rtol=2 * BF16_STEP, atol=2 * BF16_STEP)


@pytest.mark.parametrize("kernel", ["rmsnorm_2", "rmsnorm_8_streamed"])
@pytest.mark.parametrize("channels", [1000, 4096])
def test_rms_norm(kernel: str, channels: int) -> None:
    problem = mi350x.rows_of(kernel, 3, channels)
    x, weight = (normal(problem.arrays[name]) for name in ("x", "weight"))
    run(kernel, problem)
    expected = x / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(
        floats(problem.arrays["out"]), expected, rtol=2 * BF16_STEP, atol=1e-3
    )


@pytest.mark.parametrize("kernel", ["cast_row_2_streamed", "cast_row_4"])
def test_cast_row(kernel: str) -> None:
    problem = mi350x.rows_of(kernel, 3, 4000)
    x = normal(problem.arrays["x"])
    run(kernel, problem)
    scales = np.abs(x).max(1) / 448
    np.testing.assert_allclose(problem.arrays["scales"], scales, rtol=1e-6)
    found = problem.arrays["out"].view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    np.testing.assert_allclose(found * scales[:, None], x, rtol=2.0**-4, atol=scales.max() / 512)


def test_add() -> None:
    problem = mi350x.add(2048)
    x, y = (normal(problem.arrays[name], np.float32) for name in ("x", "y"))
    run("add", problem)
    np.testing.assert_allclose(problem.arrays["out"], x + y, rtol=1e-6)
