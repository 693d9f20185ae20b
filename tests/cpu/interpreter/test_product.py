"""Matrix products compiled for AVX512-BF16 and AMX, on the emulated processor, against numpy."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cpu import bochs
from tests.cpu.interpreter.library import Interpreter
from tests.cpu.interpreter.native import Code
from tests.seed import draw

pytestmark = pytest.mark.x86_64

M, N, K = 48, 32, 96
SOURCE = """
#include <immintrin.h>
#include <cstdint>
// a is [M, K], b is [K / 2, N, 2]: pairs along K
extern "C" void vectors(float* c, const uint16_t* a, const uint16_t* b) {
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; n += 16) {
      __m512 sum = _mm512_setzero_ps();
      for (int k = 0; k < K; k += 2) {
        const __m512i pair = _mm512_set1_epi32(*reinterpret_cast<const int*>(a + m * K + k));
        const __m512i row = _mm512_loadu_si512(b + (k / 2 * N + n) * 2);
        sum = _mm512_dpbf16_ps(sum, (__m512bh)row, (__m512bh)pair);
      }
      _mm512_storeu_ps(c + m * N + n, sum);
    }
  }
}
struct alignas(64) Config {
  unsigned char palette = 1, start = 0, reserved[14] = {};
  unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
extern "C" void tiles(float* c, const uint16_t* a, const uint16_t* b) {
  const Config config;
  _tile_loadconfig(&config);
  for (int m = 0; m < M; m += 16) {
    _tile_zero(0);
    _tile_zero(1);
    for (int k = 0; k < K; k += 32) {
      _tile_loadd(2, a + m * K + k, 2 * K);
      _tile_loadd(3, b + k * N, 4 * N);
      _tile_stream_loadd(4, b + k * N + 32, 4 * N);
      _tile_dpbf16ps(0, 2, 3);
      _tile_dpbf16ps(1, 2, 4);
    }
    _tile_stored(0, c + m * N, 4 * N);
    _tile_stored(1, c + m * N + 16, 4 * N);
  }
  _tile_release();
}
"""


def drawn(name: str, rows: int, columns: int) -> NDArray[np.float32]:
    """Values of bfloat16."""
    rng = np.random.default_rng(draw(name).getrandbits(64))
    bits = rng.normal(size=(rows, columns)).astype(np.float32).view(np.uint32)
    return (bits & 0xFFFF0000).view(np.float32)


def upper(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of bfloat16."""
    return np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16))


@pytest.mark.parametrize("name", ["vectors", "tiles"])
def test_a_product(name: str, processor: bochs.Processor, interpreter: Interpreter) -> None:
    with tempfile.TemporaryDirectory() as folder:
        code = Code(f"constexpr int M = {M}, N = {N}, K = {K};\n{SOURCE}", Path(folder))
    a, b, c = drawn("a", M, K), drawn("b", K, N), np.full((M, N), np.nan, np.float32)
    a_bits, b_bits = upper(a), upper(b.reshape(K // 2, 2, N).swapaxes(1, 2).copy())
    before = interpreter.executed
    processor.call(code.address(name), c.ctypes.data, a_bits.ctypes.data, b_bits.ctypes.data)
    assert interpreter.executed > before
    exact = a.astype(np.float64) @ b.astype(np.float64)
    # each of the K additions of a sum rounds once, relative to at most the sum of the sizes
    bound = K * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(b))
    assert (np.abs(c - exact) <= bound).all()
