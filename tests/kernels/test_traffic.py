"""The memory-bound kernels compute what they say, in the emulator with every check on."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from hk_backend.kernels import KernelEntry, catalogue
from hk_backend.kernels.catalogue import MEASURING
from hk_backend.timing.workloads import traffic
from hk_backend.timing.workloads.traffic import Problem

Array = NDArray[Any]
RANDOM = np.random.default_rng(0)
BF16_STEP = 2.0**-8
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def find(kernel: str) -> KernelEntry:
    found = catalogue("gfx950", MEASURING).select("traffic", kernel=kernel)
    assert isinstance(found, KernelEntry)
    return found


def normal(shape: tuple[int, ...]) -> Array:
    return RANDOM.standard_normal(shape).astype(ml_dtypes.bfloat16)


def fill(array: Array, values: Array) -> Array:
    """Writes them; in float64 as they are then."""
    array.view(values.dtype)[...] = values.reshape(array.view(values.dtype).shape)
    return values.astype(np.float64)


def run(kernel: str, problem: Problem) -> None:
    launch = traffic.launch(find(kernel), problem)
    for name in problem.outputs:
        problem.arrays[name].view(np.uint8)[...] = 0xFF  # NaN
    report = launch.machine.launch(
        launch.kernel,
        list(launch.grid),
        [launch.block],
        launch.arguments,
        dynamic_lds=launch.dynamic_lds,
    )
    assert not report.findings, report.findings[0].message
    counted = report.counters.bytes
    assert counted["global_write"] == problem.written


def test_gemv_bf16() -> None:
    problem = traffic.PROBLEMS["gemv_bf16"](n=32, k=4096)
    x = fill(problem.arrays["x"], normal((4096,)))
    weight = fill(problem.arrays["weight"], normal((32, 4096)))
    run("gemv_bf16", problem)
    np.testing.assert_allclose(problem.arrays["out"], weight @ x, atol=1e-3)


def test_gemv_fp8() -> None:
    problem = traffic.PROBLEMS["gemv_fp8"](n=32, k=4096)
    x = fill(problem.arrays["x"], RANDOM.standard_normal(4096).astype(ml_dtypes.float8_e4m3fn))
    quantised = RANDOM.standard_normal((32, 4096)).astype(ml_dtypes.float8_e4m3fn)
    weight = fill(problem.arrays["weight"], quantised)
    of_x = fill(problem.arrays["x_scales"], np.array([0.5], np.float32))
    scales = fill(problem.arrays["weight_scales"], RANDOM.random(32).astype(np.float32))
    run("gemv_fp8", problem)
    np.testing.assert_allclose(problem.arrays["out"], of_x * scales * (weight @ x), atol=1e-3)


def e2m1(codes: Array) -> Array:
    """Two of a byte, the low half first."""
    values = np.concatenate([E2M1, -E2M1])
    return np.stack([values[codes & 15], values[codes >> 4]], -1).reshape(*codes.shape[:-1], -1)


def e8m0(scales: Array) -> Array:
    """Of each element: stored by pieces of 512, then blocks of 32 counted by fours."""
    by_block = scales.reshape(*scales.shape[:-1], -1, 4, 4).swapaxes(-1, -2)
    blocks = by_block.reshape(*scales.shape[:-1], -1)
    return np.repeat(2.0 ** (blocks.astype(np.float64) - 127), 32, axis=-1)


def test_gemv_mxfp4() -> None:
    problem = traffic.PROBLEMS["gemv_mxfp4"](n=32, k=4096)
    values = {}
    for name in ("x", "weight"):
        codes, scales = problem.arrays[name], problem.arrays[f"{name}_scales"]
        codes[...] = RANDOM.integers(256, size=codes.shape, dtype=np.uint8)
        scales[...] = RANDOM.integers(124, 130, size=scales.shape, dtype=np.uint8)
        values[name] = e2m1(codes) * e8m0(scales)
    run("gemv_mxfp4", problem)
    expected = values["weight"] @ values["x"]
    np.testing.assert_allclose(problem.arrays["out"], expected, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("splits", [1, 2])
def test_decode(splits: int) -> None:
    batch, keys, kv_heads = 2, 512, 2
    problem = traffic.decode(batch=batch, keys=keys, kv_heads=kv_heads, splits=splits)
    query, key, value = (
        fill(problem.arrays[name], normal(problem.arrays[name].shape))
        for name in ("query", "key", "value")
    )
    run("decode", problem)
    found = problem.arrays["out"].sum(2) / problem.arrays["sums"].sum(2)[..., None]
    table = problem.arrays["block_table"]
    for request in range(batch):
        k, v = (cache[table[request]].reshape(keys, kv_heads, 128) for cache in (key, value))
        scores = np.einsum("ghd,kgd->ghk", query[request], k) * 128**-0.5
        weights = np.exp(scores)
        expected = np.einsum("ghk,kgd->ghd", weights / weights.sum(-1, keepdims=True), v)
        # the weights are rounded to bf16, their sum is not
        np.testing.assert_allclose(found[request], expected, atol=2 * BF16_STEP)


def test_cast_mxfp8() -> None:
    problem = traffic.cast_mxfp8(count=8192)
    scale = 2.0 ** RANDOM.integers(-20, 20, size=(256, 1))
    values = (RANDOM.standard_normal((256, 32)) * scale).astype(ml_dtypes.bfloat16)
    values[0] = 0
    x = fill(problem.arrays["x"], values)
    run("cast_mxfp8", problem)
    exponents = problem.arrays["scales"].astype(int) - 127
    largest = np.abs(x).max(1)
    assert (exponents[1:] == np.floor(np.log2(largest[1:])) - 8).all()
    factor = 2.0 ** exponents[:, None]
    expected = np.clip(x / factor, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    found = problem.arrays["out"].view(ml_dtypes.float8_e4m3fn).reshape(256, 32)
    np.testing.assert_array_equal(found.astype(float), expected.astype(float))


def test_rotary() -> None:
    heads, tokens = 3, 64
    problem = traffic.rotary(heads=heads, tokens=tokens)
    x = fill(problem.arrays["x"], normal((heads * tokens, 128))).reshape(heads, tokens, 128)
    cosine = fill(problem.arrays["cosine"], normal((tokens, 64)))
    sine = fill(problem.arrays["sine"], normal((tokens, 64)))
    run("rotary", problem)
    low, high = x[..., :64], x[..., 64:]
    expected = np.concatenate([low * cosine - high * sine, high * cosine + low * sine], -1)
    found = problem.arrays["out"].view(ml_dtypes.bfloat16).astype(float)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=BF16_STEP, atol=1e-5)


def test_layernorm() -> None:
    rows, drop = 8, 6554
    problem = traffic.layernorm(rows=rows, drop=drop)
    x, residual = (fill(problem.arrays[n], normal((rows, 2048))) for n in ("x", "residual"))
    weight, bias = (fill(problem.arrays[n], normal((2048,))) for n in ("weight", "bias"))
    run("layernorm", problem)
    hashes = np.arange(rows * 2048, dtype=np.uint32) * np.uint32(2654435761) >> 16
    kept = (hashes >= drop).reshape(rows, 2048)
    assert 0.85 < kept.mean() < 0.95
    total = residual + x * kept * (65536 / (65536 - drop))
    sums, out = (
        problem.arrays[name].view(ml_dtypes.bfloat16).astype(float) for name in ("sum", "out")
    )
    np.testing.assert_allclose(sums, total, rtol=BF16_STEP, atol=1e-5)
    mean, variance = total.mean(1, keepdims=True), total.var(1, keepdims=True)
    expected = (total - mean) / np.sqrt(variance + 1e-5) * weight + bias
    np.testing.assert_allclose(out, expected, rtol=2 * BF16_STEP, atol=2 * BF16_STEP)
