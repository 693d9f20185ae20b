"""Conversions to and from codes of 4 and 6 bits, against the definitions of the formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from hk_backend import _emulator
from hk_backend.reference.linear import encode, pack_bits, positive_elements, unpack_bits
from hk_backend.terms.weight_format import FORMATS
from tests.emulator.lanes import LANES, MODE

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]
SOURCES, SCALE, DESTINATION = 0, 32, 64
"""VGPRs of the sources one after the other, of the scale, and of the result."""
PATTERN = 0xDEADBEEF
FORMAT = {"fp4": "mxfp4", "fp6": "mxfp6_e2m3", "bf6": "mxfp6_e3m2"}
BITS = {"fp4": 4, "fp6": 6, "bf6": 6}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SIXES = ("fp6", "bf6")
EXPONENTS = (0, 3, -4)


def execute(
    mnemonic: str, sources: tuple[int, ...], rows: U32, scale: U32, dwords: int, **fields: int
) -> U32:
    """Runs an instruction on `rows`, which its sources of so many dwords share."""
    vgpr = np.full((512, LANES), PATTERN, np.uint32)
    vgpr[SOURCES : SOURCES + len(rows)] = rows
    vgpr[SCALE] = scale
    starts = np.cumsum((0, *sources))
    operands: list[tuple[Any, ...]] = [
        ("v", SOURCES + int(start), size) for start, size in zip(starts, sources, strict=False)
    ]
    operands.append(("v", SCALE, 1))
    sgpr = np.zeros(128, np.uint32)
    sgpr[126:128] = 0xFFFFFFFF
    destination = [("v", DESTINATION, dwords)]
    _emulator.execute(mnemonic, "gfx950", sgpr, vgpr, destination, operands, MODE, False, fields)
    assert (vgpr[DESTINATION + dwords] == PATTERN).all()
    return vgpr[DESTINATION : DESTINATION + dwords]


def scale_of(exponent: int) -> U32:
    """A scale whose mantissa must not count."""
    return np.full(LANES, 1.75 * 2.0**exponent, np.float32).view(np.uint32)


def numbers(name: str, count: int, seed: int, exponent: int) -> F32:
    """Finite numbers `[count, lanes]`, as float32.

    They are codes' values times the scale, ties of neighbours, those beside both, numbers beyond
    the largest, zeros of either sign, and random ones. All of them are bf16 and fp16 numbers.
    """
    elements = positive_elements(FORMAT[name])
    edges = torch.cat([elements, (elements[1:] + elements[:-1]) / 2]).float()
    beside = torch.cat([edges * 1.015625, edges * 0.984375])
    kept = torch.cat([edges, beside, torch.tensor([33.0, 1000.0])])
    signed = torch.cat([kept, -kept]).bfloat16().half().float()
    random = torch.Generator().manual_seed(seed)
    picked = torch.randint(len(signed), (count, LANES), generator=random)
    picked.view(-1)[: len(signed)] = torch.arange(len(signed))[: picked.numel()]
    return (signed[picked] * 2.0**exponent).bfloat16().half().float().numpy()


def codes_of(name: str, values: F32, exponent: int) -> npt.NDArray[np.int64]:
    """Codes of `[count, lanes]` values over the scale, by the reference."""
    facts = FORMATS[FORMAT[name]]
    whole = torch.from_numpy(values.T.astype(np.float64)) * 2.0**-exponent
    padded = torch.nn.functional.pad(whole, (0, -whole.shape[1] % 32))
    codes = unpack_bits(encode(padded, facts), facts.bits)[:, : whole.shape[1]]
    return codes.numpy().T


def bits_of(source: str, values: F32) -> U32:
    """Registers `[dwords, lanes]` of values `[count, lanes]`: neighbours share one, in 16 bits."""
    if source == "f32":
        return values.view(np.uint32)
    halves = torch.from_numpy(values).to(DTYPES[source]).view(torch.int16).numpy()
    words = halves.astype(np.uint16).astype(np.uint32)
    return words[::2] | words[1::2] << np.uint32(16)


def values_in(source: str, rows: U32) -> F32:
    """The inverse of `bits_of`."""
    if source == "f32":
        return rows.view(np.float32)
    halves = np.stack([rows & 0xFFFF, rows >> np.uint32(16)], 1).reshape(-1, LANES)
    stored = torch.from_numpy(halves.astype(np.uint16).view(np.int16)).view(DTYPES[source])
    return stored.float().numpy()


def words_of(name: str, codes: npt.NDArray[np.int64]) -> U32:
    """Registers with codes `[count, lanes]`, the lowest bits first."""
    stream = pack_bits(torch.from_numpy(np.ascontiguousarray(codes.T)), BITS[name]).numpy()
    return np.ascontiguousarray(stream.view(np.uint32).T)


def random_codes(name: str, count: int) -> npt.NDArray[np.int64]:
    random = np.random.default_rng(count)
    codes = random.integers(0, 1 << BITS[name], (count, LANES))
    codes[0] = np.arange(LANES) % (1 << BITS[name])
    return codes


def expected_values(
    name: str, codes: npt.NDArray[np.int64], exponent: int, source: str
) -> torch.Tensor:
    positive = positive_elements(FORMAT[name])
    values = torch.cat([positive, -positive])[torch.from_numpy(codes)] * 2.0**exponent
    return values.to(DTYPES[source]).float()


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("source", DTYPES)
def test_two_numbers_to_a_byte_of_fp4(source: str, byte: int, exponent: int) -> None:
    """The first number has the low half of the byte; the other bytes stay."""
    for seed in range(4):
        values = numbers("fp4", 2, seed, exponent)
        rows = bits_of(source, values)
        sources = (1,) * len(rows)
        mnemonic = f"v_cvt_scalef32_pk_fp4_{source}"
        found = execute(mnemonic, sources, rows, scale_of(exponent), 1, op_sel=byte << 2)[0]
        low, high = codes_of("fp4", values, exponent).astype(np.uint32)
        mask = np.uint32(0xFF << 8 * byte)
        wanted = (np.uint32(PATTERN) & ~mask) | (low | high << np.uint32(4)) << np.uint32(8 * byte)
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("name", SIXES)
def test_two_sources_of_16_numbers_take_turns(name: str, exponent: int) -> None:
    for seed in range(4):
        values = numbers(name, 32, seed, exponent)
        rows = values.view(np.uint32)
        mnemonic = f"v_cvt_scalef32_2xpk16_{name}_f32"
        found = execute(mnemonic, (16, 16), rows, scale_of(exponent), 6)
        in_turn = np.stack([values[:16], values[16:]], 1).reshape(32, LANES)
        assert np.array_equal(found, words_of(name, codes_of(name, in_turn, exponent)))


def test_codes_must_not_overlap_a_source() -> None:
    vgpr, sgpr = np.zeros((512, LANES), np.uint32), np.zeros(128, np.uint32)
    for first in (5, 37, 40):
        sources = [("v", 10, 16), ("v", 26, 16), ("v", 42, 1)]
        with pytest.raises(NotImplementedError, match="must not overlap"):
            _emulator.execute(
                "v_cvt_scalef32_2xpk16_fp6_f32",
                *("gfx950", sgpr, vgpr, [("v", first, 6)], sources, MODE, False, {}),
            )


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("name", SIXES)
def test_32_numbers_to_6_bits(name: str, source: str, exponent: int) -> None:
    for seed in range(4):
        values = numbers(name, 32, seed, exponent)
        mnemonic = f"v_cvt_scalef32_pk32_{name}_{source}"
        found = execute(mnemonic, (16,), bits_of(source, values), scale_of(exponent), 6)
        assert np.array_equal(found, words_of(name, codes_of(name, values, exponent)))


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("source", DTYPES)
def test_a_byte_of_fp4_to_two_numbers(source: str, byte: int, exponent: int) -> None:
    codes = random_codes("fp4", 8)
    rows = words_of("fp4", codes)
    mnemonic = f"v_cvt_scalef32_pk_{source}_fp4"
    dwords = 2 if source == "f32" else 1
    found = execute(mnemonic, (1,), rows, scale_of(exponent), dwords, op_sel=byte)
    own = codes[2 * byte : 2 * byte + 2]
    wanted = expected_values("fp4", own, exponent, source).numpy()
    assert np.array_equal(values_in(source, found).view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("name", SIXES)
def test_6_bits_to_32_numbers(name: str, source: str, exponent: int) -> None:
    codes = random_codes(name, 32)
    mnemonic = f"v_cvt_scalef32_pk32_{source}_{name}"
    dwords = 32 if source == "f32" else 16
    found = execute(mnemonic, (6,), words_of(name, codes), scale_of(exponent), dwords)
    wanted = expected_values(name, codes, exponent, source).numpy()
    assert np.array_equal(values_in(source, found).view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("name", SIXES)
def test_scales_at_the_ends_of_the_range(name: str) -> None:
    """Exponent 0 is 2^-127, and a quotient far below float32's range becomes a zero."""
    values = np.zeros((32, LANES), np.float32)
    values[0], values[16], values[1], values[17] = 2.0**-127, -(2.0**-149), -3e38, -0.0
    mnemonic = f"v_cvt_scalef32_2xpk16_{name}_f32"
    for exponent in (-127, 127):
        scale = np.full(LANES, (exponent + 127) << 23, np.uint32)
        found = execute(mnemonic, (16, 16), values.view(np.uint32), scale, 6)
        in_turn = np.stack([values[:16], values[16:]], 1).reshape(32, LANES)
        assert np.array_equal(found, words_of(name, codes_of(name, in_turn, exponent)))
