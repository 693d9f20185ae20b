"""MFMA against float64 matrix products: each shape, type and broadcast; small integers make every
product exact, so that a misplaced element shows. Layouts of f8f6f4 after AMD's article "Matrix Core
Programming on CDNA3 and CDNA4"."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.emulator.lanes import LANES, Wave
from tests.emulator.matrices import Shape, c_registers, execute, registers_of
from tests.emulator.test_semantics_convert import FP8

F64 = np.float64
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8}
EIGHT = [f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
BLOCKS = ("32x32x4_2b", "16x16x4_4b", "4x4x4_16b")
# the results of each type, the shapes of the operands, and their types
BOTH = [
    ("f32", ("32x32x1_2b", "16x16x1_4b", "4x4x1_16b", "32x32x2", "16x16x4"), ["f32"]),
    ("f32", (*BLOCKS, "32x32x8", "16x16x16"), ["f16", "bf16"]),
    ("i32", (*BLOCKS, "32x32x16", "16x16x32"), ["i8"]),
    ("f32", ("16x16x32", "32x32x16"), EIGHT),
]
GFX950 = [
    ("f32", ("16x16x32", "32x32x16"), ["f16", "bf16"]),
    ("i32", ("16x16x64", "32x32x32"), ["i8"]),
]
ALL_INSTRUCTIONS = [
    (f"v_mfma_{result}_{shape}_{operands}", arch)
    for arch, table in (("gfx942", BOTH), ("gfx950", [*BOTH, *GFX950]))
    for result, shapes, types in table
    for shape in shapes
    for operands in types
]


def run(
    name: str, arch: str, shape: Shape, a: torch.Tensor, b: torch.Tensor, c: np.ndarray, **f: int
) -> np.ndarray:
    """D as [blocks, rows, columns]."""
    rows = c_registers(shape, c).view(np.uint32)
    operands: list[tuple[object, ...]] = [("v", 0), ("v", 16), ("a", 0)]
    wave = Wave(arch=arch, exec=0x5)  # MFMA ignores EXEC
    sgpr, vgpr = wave.arrays()
    for at, values in ((0, registers_of(shape, a)), (16, registers_of(shape, b))):
        vgpr[at : at + len(values)] = values
    vgpr[256 : 256 + len(rows)] = rows
    result = execute(name, arch, sgpr, vgpr, operands, wave.mode, f)
    out = np.zeros_like(c)
    for r, row in enumerate(shape.outputs()):
        for lane, (i, j, block) in enumerate(row):
            out[block, i, j] = result.vgpr[64 + r].view(c.dtype)[lane]
    return out


def integers(shape: tuple[int, ...], dtype: torch.dtype, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.integers(-4, 5, shape).astype(np.float32)).to(dtype)


@pytest.mark.parametrize(("name", "arch"), ALL_INSTRUCTIONS)
def test_layout_by_exact_integers(name: str, arch: str) -> None:
    shape, rng = Shape(name), np.random.default_rng(0)
    size = (shape.blocks, shape.m, shape.k)
    a, b = (integers(size, FP8.get((arch, t)) or TYPES[t], rng) for t in shape.types)
    c = rng.integers(-9, 9, (shape.blocks, shape.m, shape.m))
    c = c.astype(np.int32 if "i32" in name else np.float32)
    d = run(name, arch, shape, a, b, c)
    expected = np.einsum("bik,bjk->bij", a.to(torch.float64).numpy(), b.to(torch.float64).numpy())
    assert np.array_equal(d, expected + c)


def test_accumulates_in_order_of_k_with_one_rounding_per_product() -> None:
    """The documented assumption, bit by bit; bf16 products are exact in f32."""
    shape, rng = Shape("v_mfma_f32_32x32x16_bf16"), np.random.default_rng(2)
    a, b = (torch.from_numpy(rng.normal(size=(1, 32, 16))).to(torch.bfloat16) for _ in "ab")
    c = rng.normal(size=(1, 32, 32)).astype(np.float32)
    d = run("v_mfma_f32_32x32x16_bf16", "gfx950", shape, a, b, c)
    x, y = a.to(torch.float64).numpy(), b.to(torch.float64).numpy()
    expected = c.copy()
    for k in range(16):  # exact in f64, but for sums that span more than 53 bits
        product = x[0, :, None, k] * y[0, None, :, k]
        expected[0] = (product + expected[0]).astype(np.float32)
    assert np.array_equal(d, expected)


def test_integer_accumulation_wraps() -> None:
    shape = Shape("v_mfma_i32_16x16x32_i8")
    a = torch.full((1, 16, 32), -128, dtype=torch.int8)
    c = np.full((1, 16, 16), 2**31 - 1, np.int32)
    d = run("v_mfma_i32_16x16x32_i8", "gfx942", shape, a, a, c)
    assert np.all(d == np.int32(2**31 - 1 + 32 * 128 * 128 - 2**32))


def test_constant_c_and_special_values() -> None:
    shape = Shape("v_mfma_f32_16x16x16_f16")
    a = torch.zeros(1, 16, 16, dtype=torch.float16)
    a[0, 0, 0], a[0, 1, 0], a[0, 2, 3] = float("inf"), float("nan"), 2.0**-24
    b = torch.zeros(1, 16, 16, dtype=torch.float16)
    b[0, :, 0], b[0, :, 3] = 1.0, 2.0**-24
    b[0, 5, 0] = float("-inf")
    wave = Wave(mode=0)  # denormals flushed elsewhere: not in MFMA
    sgpr, vgpr = wave.arrays()
    vgpr[:2], vgpr[16:18] = registers_of(shape, a), registers_of(shape, b)
    one = ("c", 0x3F800000)
    out = execute("v_mfma_f32_16x16x16_f16", "gfx942", sgpr, vgpr,
                  [("v", 0), ("v", 16), one], 0, {}).rows  # fmt: skip
    d = {(i, j): out[r, lane] for r, row in enumerate(shape.outputs())
         for lane, (i, j, _) in enumerate(row)}  # fmt: skip
    assert d[0, 3] == 0x7F800000
    assert d[0, 5] == 0xFF800000
    assert d[1, 3] == 0x7FC00000
    assert d[2, 3] == 0x3F800000  # 1 + 2^-48
    assert d[2, 5] == 0x7FC00000  # 0 times -infinity
    vgpr[:2], vgpr[16:18] = registers_of(shape, a), registers_of(shape, b)
    out = execute("v_mfma_f32_16x16x16_f16", "gfx942", *wave.arrays()[:1], vgpr,
                  [("v", 0), ("v", 16), ("c", 0x00000001)], 0, {}).rows  # fmt: skip
    assert out[3, 3] == 1  # a denormal C survives


@pytest.mark.parametrize("cbsz", [0, 1, 2])
def test_cbsz_broadcasts_one_block_of_a(cbsz: int) -> None:
    name, rng = "v_mfma_f32_16x16x4_4b_f16", np.random.default_rng(3)
    shape = Shape(name)
    a, b = (integers((4, 16, 4), torch.float16, rng) for _ in "ab")
    c = np.zeros((4, 16, 16), np.float32)
    for abid in range(1 << cbsz):
        d = run(name, "gfx942", shape, a, b, c, cbsz=cbsz, abid=abid)
        for block in range(4):
            source = (block >> cbsz << cbsz) + abid
            expected = a[source].double().numpy() @ b[block].double().numpy().T
            assert np.array_equal(d[block], expected)


# the lane group of 16 that each of the four takes B from (the calculator's BLGP table)
@pytest.mark.parametrize(
    ("blgp", "groups"),
    [(1, [0, 1, 0, 1]), (2, [2, 3, 2, 3]), (3, [1, 2, 3, 0]), (4, [0] * 4), (5, [1] * 4),
     (6, [2] * 4), (7, [3] * 4)],
)  # fmt: skip
def test_blgp_broadcasts_lanes_of_b(blgp: int, groups: list[int]) -> None:
    name, rng = "v_mfma_f32_16x16x1_4b_f32", np.random.default_rng(4)
    shape = Shape(name)
    a, b = (integers((4, 16, 1), torch.float32, rng) for _ in "ab")
    d = run(name, "gfx942", shape, a, b, np.zeros((4, 16, 16), np.float32), blgp=blgp)
    for block in range(4):
        assert np.array_equal(d[block], (a[block] @ b[groups[block]].T).numpy())


@pytest.mark.parametrize(("m", "blocks"), [(16, 1), (4, 4)])
def test_f64(m: int, blocks: int) -> None:
    """One element per lane: k in steps of M * blocks lanes; rows of D likewise."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-5, 5, (2, blocks, m, 4)).astype(F64)
    c = rng.integers(-5, 5, (blocks, m, m)).astype(F64)
    stride = m * blocks
    pairs = m * m * blocks // LANES
    wave = Wave()
    sgpr, vgpr = wave.arrays()

    def put(at: int, lanes: np.ndarray) -> None:
        bits = lanes.view(np.uint64)
        vgpr[at], vgpr[at + 1] = bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)

    lane = np.arange(LANES)
    block = lane // m % blocks
    put(0, a[block, lane % m, lane // stride])
    put(16, b[block, lane % m, lane // stride])
    per_pair = m // pairs
    for p in range(pairs):
        put(256 + 2 * p, c[block, p * per_pair + lane // stride, lane % m])
    suffix = "4x4x4_4b" if blocks == 4 else "16x16x4"
    out = execute(f"v_mfma_f64_{suffix}_f64", "gfx942", sgpr, vgpr,
                  [("v", 0), ("v", 16), ("a", 0)], wave.mode, {"blgp": 4}).rows  # fmt: skip
    expected = np.einsum("bik,bjk->bij", a, b) - c  # blgp bit 2: -C
    for p in range(pairs):
        d = out[2 * p].astype(np.uint64) | out[2 * p + 1].astype(np.uint64) << np.uint64(32)
        assert np.array_equal(d.view(F64), expected[block, p * per_pair + lane // stride, lane % m])


# --- f8f6f4 ---------------------------------------------------------------------------------------


# the keys are the formats' numbers in cbsz and blgp
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
