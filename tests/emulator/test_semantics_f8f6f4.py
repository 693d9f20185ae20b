"""f8f6f4 (gfx950) against float64, scaled and not; layouts after AMD's article "Matrix Core
Programming on CDNA3 and CDNA4"."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.lanes import LANES, Wave
from tests.emulator.matrices import Shape, c_registers, execute

F64 = np.float64

# by the format's number in cbsz and blgp
FORMATS = {
    0: ml_dtypes.float8_e4m3fn, 1: ml_dtypes.float8_e5m2, 2: ml_dtypes.float6_e2m3fn,
    3: ml_dtypes.float6_e3m2fn, 4: ml_dtypes.float4_e2m1fn,
}  # fmt: skip
WIDTH = {number: ml_dtypes.finfo(dtype).bits for number, dtype in FORMATS.items()}


def lowp_registers(codes: np.ndarray, number: int) -> np.ndarray:
    """[rows, k] of codes to the registers of a lane: fp8 in runs of 16, others of 32."""
    m, total = codes.shape
    width = WIDTH[number]
    run_length = 16 if width == 8 else 32
    groups = LANES // m
    out = np.zeros((8, LANES), np.uint32)
    for lane in range(LANES):
        packed = 0
        for j in range(total * m // LANES):
            k = j // run_length * run_length * groups + lane // m * run_length + j % run_length
            packed |= int(codes[lane % m, k]) << (j * width)
        for r in range(8):
            out[r, lane] = packed >> (32 * r) & 0xFFFFFFFF
    return out


@pytest.mark.parametrize(("m", "k"), [(16, 128), (32, 64)])
@pytest.mark.parametrize("formats", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (0, 4), (3, 1)])
@pytest.mark.parametrize("scaled", [False, True])
def test_f8f6f4(m: int, k: int, formats: tuple[int, int], scaled: bool) -> None:
    rng = np.random.default_rng(6)
    codes = []
    for number in formats:
        width = WIDTH[number]
        top = {0: 0x70, 1: 0x60}.get(number, 1 << (width - 1))  # no infinity, no NaN
        magnitude = rng.integers(0, top, (m, k))
        codes.append(magnitude | rng.integers(0, 2, (m, k)) << (width - 1))
    a, b = (
        c.astype(np.uint8).view(FORMATS[n]).astype(F64) for c, n in zip(codes, formats, strict=True)
    )
    scales = rng.integers(120, 135, (2, m, k // 32))
    shape = Shape(f"v_mfma_f32_{m}x{m}x{k}_x_x")
    c = rng.normal(size=(1, m, m)).astype(np.float32)
    wave = Wave()
    sgpr, vgpr = wave.arrays()
    vgpr[0:8], vgpr[16:24] = (lowp_registers(x, n) for x, n in zip(codes, formats, strict=True))
    rows = c_registers(shape, c).view(np.uint32)
    vgpr[256 : 256 + len(rows)] = rows
    for n, at, byte in ((0, 30, 2), (1, 40, 1)):  # the byte that op_sel names, among others
        lane = np.arange(LANES)
        scale = scales[n][lane % m, lane // m % (k // 32)].astype(np.uint32)
        vgpr[at] = scale << np.uint32(8 * byte) | np.uint32(0x11 << (8 * (3 - byte)))
    operands: list[tuple[object, ...]] = [("v", 0), ("v", 16), ("a", 0), ("v", 30), ("v", 40)]
    name = f"v_mfma_{'scale_' if scaled else ''}f32_{m}x{m}x{k}_f8f6f4"
    fields = {"cbsz": formats[0], "blgp": formats[1], "op_sel": 0b10, "op_sel_hi": 0b01}
    out = execute(name, "gfx950", sgpr, vgpr, operands if scaled else operands[:3], 0, fields).rows
    if scaled:
        a, b = (
            x * np.repeat(2.0 ** (s - 127), 32, axis=1) for x, s in zip((a, b), scales, strict=True)
        )
    expected = a @ b.T + c[0]
    magnitude = np.abs(a) @ np.abs(b.T) + np.abs(c[0])
    for r, row in enumerate(shape.outputs()):
        for lane, (i, j, _) in enumerate(row):
            got = float(out[r].view(np.float32)[lane])
            assert abs(got - expected[i, j]) <= k * 2.0**-24 * magnitude[i, j]


def test_f8f6f4_scale_of_nan() -> None:
    wave = Wave()
    sgpr, vgpr = wave.arrays()
    vgpr[0:32] = 0x38383838  # fp8 ones
    vgpr[30], vgpr[40] = 0xFF, 127
    out = execute("v_mfma_scale_f32_16x16x128_f8f6f4", "gfx950", sgpr, vgpr,
                  [("v", 0), ("v", 16), ("c", 0), ("v", 30), ("v", 40)], 0, {}).rows  # fmt: skip
    assert np.all(out[:4] == 0x7FC00000)
