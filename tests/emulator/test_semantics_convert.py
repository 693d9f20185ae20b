"""Conversions, exhaustively where 16 bits allow it, against torch's and numpy's types."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.emulator.lanes import LANES, MODE, Wave

ALL_16 = np.arange(1 << 16, dtype=np.uint32).reshape(-1, LANES)
FP8 = {
    ("gfx942", "fp8"): torch.float8_e4m3fnuz,
    ("gfx942", "bf8"): torch.float8_e5m2fnuz,
    ("gfx950", "fp8"): torch.float8_e4m3fn,
    ("gfx950", "bf8"): torch.float8_e5m2,
}
FP16_OVFL = 1 << 23


def run(name: str, *sources: np.ndarray, wave: Wave | None = None, **fields: int) -> np.ndarray:
    """Converts any number of values, 64 at a time."""
    padded = [np.resize(s, -(-len(s) // LANES) * LANES).reshape(-1, LANES) for s in sources]
    out = [(wave or Wave()).vector(name, *row, **fields).u32 for row in zip(*padded, strict=True)]
    return np.concatenate(out)[: len(sources[0])]


def same_floats(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Whether bits are equal; a NaN must meet a NaN."""
    nan = np.isnan(expected)
    return bool(
        np.array_equal(np.isnan(actual), nan)
        and np.array_equal(actual[~nan].view(np.uint8), expected[~nan].view(np.uint8))
    )


def test_f16_to_f32_every_value() -> None:
    actual = run("v_cvt_f32_f16", ALL_16.ravel()).view(np.float32)
    assert same_floats(actual, ALL_16.ravel().astype(np.uint16).view(np.float16).astype(np.float32))


def test_bf16_to_f32_every_value() -> None:
    assert np.array_equal(run("v_cvt_f32_bf16", ALL_16.ravel()), ALL_16.ravel() << 16)


# below, at and above the tie of the 16 bits that are dropped, and with nothing dropped
@pytest.mark.parametrize("low", [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_f32_to_bf16_every_upper_half(low: int) -> None:
    bits = ALL_16.ravel() << np.uint32(16) | np.uint32(low)
    packed = run("v_cvt_pk_bf16_f32", bits, bits[::-1].copy())
    floats = torch.from_numpy(bits.view(np.float32).copy())
    expected = floats.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    nan = np.isnan(bits.view(np.float32))
    for actual, order in ((packed & 0xFFFF, slice(None)), (packed >> 16, slice(None, None, -1))):
        assert np.array_equal(actual[~nan[order]], expected[order][~nan[order]])
        assert np.all((actual[nan[order]] & 0x7FC0) == 0x7FC0)


def f32_around_f16() -> np.ndarray:
    """Every f16 and its neighbours in f32 at, below and above the tie."""
    exact = ALL_16.ravel().astype(np.uint16).view(np.float16).astype(np.float32)
    exact = exact[np.isfinite(exact)].view(np.uint32)
    near = [exact + np.uint32(d) for d in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
    denormal = np.arange(0x32F00000, 0x38800000, 0x1333, dtype=np.uint32)
    overflow = np.array([0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0x7F800000, 0xFF7FFFFF,
                         0x7FC00000, 0x00000001, 0x80000001], np.uint32)  # fmt: skip
    return np.concatenate([*near, denormal, overflow])


def test_f32_to_f16_to_nearest() -> None:
    bits = f32_around_f16()
    with np.errstate(over="ignore"):
        expected = bits.view(np.float32).astype(np.float16)
    actual = run("v_cvt_f16_f32", bits)
    assert same_floats(actual.astype(np.uint16).view(np.float16), expected)
    assert np.all(actual >> 16 == 0)  # the upper half is cleared
    pair = run("v_cvt_pk_f16_f32", bits, bits)
    assert np.array_equal(pair, actual | actual << np.uint32(16))


def directed(bits: np.ndarray, rounding: int) -> np.ndarray:
    """f32 to f16 up (1), down (2) or towards zero (3), from the nearest one."""
    value = bits.view(np.float32)
    with np.errstate(over="ignore"):
        near = value.astype(np.float16)
    wide = near.astype(np.float32)
    lower = np.nextafter(near, np.float16(-np.inf))
    upper = np.nextafter(near, np.float16(np.inf))
    down = np.where(wide > value, lower, near)
    up = np.where(wide < value, upper, near)
    result = {1: up, 2: down, 3: np.where(value < 0, up, down)}[rounding]
    return np.copysign(result, value).astype(np.float16)


@pytest.mark.parametrize("rounding", [1, 2, 3])
def test_f32_to_f16_directed(rounding: int) -> None:
    bits = f32_around_f16()
    bits = bits[~np.isnan(bits.view(np.float32))]
    expected = directed(bits, rounding).view(np.uint16)
    wave = Wave(mode=MODE | rounding << 2)
    assert np.array_equal(run("v_cvt_f16_f32", bits, wave=wave), expected)
    if rounding == 3:  # whatever MODE says
        assert np.array_equal(run("v_cvt_pkrtz_f16_f32", bits, bits) & 0xFFFF, expected)


def test_f16_overflow_bit() -> None:
    bits = np.array([1e6, -1e6, np.inf], np.float32).view(np.uint32)
    actual = run("v_cvt_f16_f32", bits, wave=Wave(mode=MODE | FP16_OVFL))
    assert list(actual) == [0x7BFF, 0xFBFF, 0x7C00]


@pytest.mark.parametrize(("arch", "name"), FP8)
def test_fp8_to_f32_every_value(arch: str, name: str) -> None:
    codes = np.arange(256, dtype=np.uint32)
    expected = torch.from_numpy(codes.astype(np.uint8)).view(FP8[arch, name]).float().numpy()
    wave = Wave(arch=arch)
    assert same_floats(run(f"v_cvt_f32_{name}", codes, wave=wave).view(np.float32), expected)
    for byte in range(4):  # SDWA chooses
        there = codes << np.uint32(8 * byte) | np.uint32(0x5A << (8 * ((byte + 1) % 4)))
        actual = run(f"v_cvt_f32_{name}", there, wave=wave, sdwa=1, src0_sel=byte)
        assert same_floats(actual.view(np.float32), expected)
    two = codes | codes[::-1] << np.uint32(8)
    for start in range(0, 256, LANES):
        out = wave.vector(f"v_cvt_pk_f32_{name}", two[start : start + LANES], dwords=2).rows
        assert same_floats(out[0].view(np.float32), expected[start : start + LANES])
        assert same_floats(out[1].view(np.float32), expected[::-1][start : start + LANES])


@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize(("to", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
@pytest.mark.parametrize("exponent", [0, 3, -4])
def test_two_fp8_to_16_bits_every_value(
    name: str, to: str, dtype: torch.dtype, exponent: int
) -> None:
    """A value is multiplied by the scale's power of two: its mantissa does not count."""
    codes = np.arange(256, dtype=np.uint32)
    stored = torch.from_numpy(codes.astype(np.uint8)).view(FP8["gfx950", name])
    expected = (stored.float() * 2.0**exponent).to(dtype).float().numpy()
    scale = np.full(256, 1.75 * 2.0**exponent, np.float32).view(np.uint32)
    for half in (0, 1):
        there = (codes | codes[::-1] << np.uint32(8)) << np.uint32(16 * half)
        wave = Wave(arch="gfx950")
        found = run(f"v_cvt_scalef32_pk_{to}_{name}", there, scale, wave=wave, op_sel=half)
        halves = torch.from_numpy(found.view(np.int16).copy()).view(dtype).float().numpy()
        assert same_floats(halves[::2], expected)
        assert same_floats(halves[1::2], expected[::-1])


@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("exponent", [0, 3, -4])
def test_two_fp8_to_f32_every_value(name: str, exponent: int) -> None:
    codes = np.arange(256, dtype=np.uint32)
    stored = torch.from_numpy(codes.astype(np.uint8)).view(FP8["gfx950", name])
    expected = (stored.float() * 2.0**exponent).numpy()
    scale = np.full(LANES, 1.75 * 2.0**exponent, np.float32).view(np.uint32)
    for half in (0, 1):
        there = (codes | codes[::-1] << np.uint32(8)) << np.uint32(16 * half)
        wave = Wave(arch="gfx950")
        for start in range(0, 256, LANES):
            own = slice(start, start + LANES)
            found = wave.vector(
                f"v_cvt_scalef32_pk_f32_{name}", there[own], scale, dwords=2, op_sel=half
            ).rows
            assert same_floats(found[0].view(np.float32), expected[own])
            assert same_floats(found[1].view(np.float32), expected[::-1][own])


@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("source", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("exponent", [0, 2, -3])
def test_two_numbers_to_fp8_over_a_scale(name: str, source: str, exponent: int) -> None:
    """Every code times the scale comes back as it was; the other half of the register stays."""
    stored = torch.arange(256, dtype=torch.uint8).view(FP8["gfx950", name])
    scaled = (stored.float() * 2.0**exponent).half().float()
    finite = stored[scaled.isfinite()]  # in every source
    codes = finite.view(torch.uint8).numpy().astype(np.uint32)
    values = finite.float() * 2.0**exponent
    scale = np.full(len(codes), 1.5 * 2.0**exponent, np.float32).view(np.uint32)
    wave = Wave(arch="gfx950", destination=np.full(LANES, 0x11223344, np.uint32))
    mnemonic = f"v_cvt_scalef32_pk_{name}_{source}"
    if source == "f32":
        bits = values.numpy().view(np.uint32)
        found = run(mnemonic, bits, bits[::-1].copy(), scale, wave=wave)
    else:
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[source]
        halves = values.to(dtype).view(torch.int16).numpy().astype(np.uint16).astype(np.uint32)
        found = run(mnemonic, halves | halves[::-1] << np.uint32(16), scale, wave=wave)
    assert np.array_equal(found, 0x11220000 | codes | codes[::-1] << np.uint32(8))


@pytest.mark.parametrize(("arch", "name"), FP8)
def test_f32_to_fp8(arch: str, name: str) -> None:
    """Every number of the format, its neighbours and the ties between."""
    codes = torch.arange(256, dtype=torch.uint8).view(FP8[arch, name]).float().numpy()
    finite = np.unique(codes[np.isfinite(codes)])
    ties = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    values = np.concatenate([finite, ties]).astype(np.float32)
    bits = values.view(np.uint32)
    bits = np.concatenate([bits, bits + np.uint32(1), bits[np.abs(values) > 1e-30] - np.uint32(1)])
    value = bits.view(np.float32)
    largest = float(finite.max())
    rounded = torch.from_numpy(value.copy()).to(FP8[arch, name])
    expected = rounded.view(torch.uint8).numpy()
    inside = np.abs(value) <= largest
    wave = Wave(arch=arch, destination=np.full(LANES, 0x11223344, np.uint32))
    packed = run(f"v_cvt_pk_{name}_f32", bits, bits[::-1].copy(), wave=wave)
    assert np.array_equal((packed & 0xFF)[inside], expected[inside])
    assert np.array_equal((packed >> 8 & 0xFF)[inside[::-1]], expected[::-1][inside[::-1]])
    assert np.all(packed >> 16 == 0x1122)
    upper = run(f"v_cvt_pk_{name}_f32", bits, bits, wave=wave, op_sel=8)
    assert np.array_equal((upper >> 16 & 0xFF)[inside], expected[inside])
    assert np.all(upper & 0xFFFF == 0x3344)


@pytest.mark.parametrize(("arch", "name"), FP8)
def test_fp8_overflow(arch: str, name: str) -> None:
    """Infinity where the format has it, else NaN; with FP16_OVFL the largest number."""
    dtype = FP8[arch, name]
    largest = torch.finfo(dtype).max
    values = np.array([4 * largest, -4 * largest, np.inf, np.nan], np.float32).view(np.uint32)
    codes = run(f"v_cvt_pk_{name}_f32", values, values, wave=Wave(arch=arch)) & 0xFF
    as_floats = torch.from_numpy(codes.astype(np.uint8)).view(dtype).float().numpy()
    if dtype == torch.float8_e5m2:
        assert list(as_floats[:3]) == [np.inf, -np.inf, np.inf]
    else:
        assert np.all(np.isnan(as_floats[:3]))
    assert np.isnan(as_floats[3])
    wave = Wave(arch=arch, mode=MODE | FP16_OVFL)
    codes = run(f"v_cvt_pk_{name}_f32", values, values, wave=wave) & 0xFF
    as_floats = torch.from_numpy(codes.astype(np.uint8)).view(dtype).float().numpy()
    assert list(as_floats[:2]) == [largest, -largest]


def test_floor_conversions_and_bytes() -> None:
    values = np.array([0.5, -0.5, 1.5, -1.5, 2.49, 3e9, -3e9, np.nan, 254.5, 255.5, -7.0, 0.49],
                      np.float32)  # fmt: skip
    bits = values.view(np.uint32)
    floor = run("v_cvt_flr_i32_f32", bits).view(np.int32)
    assert list(floor) == [0, -1, 1, -2, 2, 2**31 - 1, -(2**31), 0, 254, 255, -7, 0]
    half_up = run("v_cvt_rpi_i32_f32", bits).view(np.int32)
    assert list(half_up) == [1, 0, 2, -1, 2, 2**31 - 1, -(2**31), 0, 255, 256, -7, 0]
    old = np.full(len(bits), 0x11223344, np.uint32)
    packed = run("v_cvt_pk_u8_f32", bits, np.full(len(bits), 2, np.uint32), old)
    byte = [0, 0, 2, 0, 2, 255, 0, 0, 254, 255, 0, 0]
    assert list(packed) == [0x11003344 | b << 16 for b in byte]
    nibbles = np.arange(16, dtype=np.uint32)
    sixteenths = run("v_cvt_off_f32_i4", nibbles).view(np.float32)
    assert list(sixteenths * 16) == [*range(8), *range(-8, 0)]


@pytest.mark.parametrize("mode", [0x00, 0x40, 0x80, 0xC0])
def test_f16_denormals_follow_their_own_mode_bits(mode: int) -> None:
    """Bit 6 admits denormal f16 sources, bit 7 denormal f16 results; f32's are others."""
    denormal = np.full(LANES, 0x0200, np.uint32)
    widened = Wave(mode=mode).vector("v_cvt_f32_f16", denormal).f32
    assert np.all(widened == (2.0**-15 if mode & 0x40 else 0))
    small = np.full(LANES, 2.0**-15, np.float32)
    narrowed = Wave(mode=mode | 0x30).vector("v_cvt_f16_f32", small).u32
    assert np.all(narrowed == (0x0200 if mode & 0x80 else 0))
    total = Wave(mode=mode).vector("v_add_f16", denormal, np.full(LANES, 0x0400, np.uint32)).u32
    assert np.all(total == (0x0600 if mode & 0x40 else 0x0400))
