"""The reference's own formats and quantisers, against ml_dtypes and against numbers worked out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from hk_backend import reference
from hk_backend.reference.linear import decode, encode, mx_scale_values, pack_bits, unpack_bits
from hk_backend.reference.rotation import rotated
from hk_backend.terms.weight_format import FORMATS

ELEMENTS = {
    "fp8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "fp8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "mxfp8": ml_dtypes.float8_e4m3fn,
    "mxfp6_e2m3": ml_dtypes.float6_e2m3fn,
    "mxfp6_e3m2": ml_dtypes.float6_e3m2fn,
    "mxfp4": ml_dtypes.float4_e2m1fn,
}
"""ml_dtypes has the same elements."""


def all_codes(name: str) -> tuple[torch.Tensor, np.ndarray]:
    """Every code once, as a checkpoint holds them, and their values after ml_dtypes."""
    format = FORMATS[name]
    codes = np.arange(2**format.bits, dtype=np.uint8)
    values = codes.view(ELEMENTS[name]).astype(np.float64)
    stored = torch.from_numpy(codes.astype(np.int64))
    if format.bits == 8:
        return torch.from_numpy(codes).view(format.dtype), values
    return pack_bits(stored, format.bits), values


@pytest.mark.parametrize("name", ELEMENTS)
def test_every_code_has_the_value_of_ml_dtypes(name: str) -> None:
    codes, values = all_codes(name)
    np.testing.assert_array_equal(decode(codes, FORMATS[name]).numpy(), values)
    format, info = FORMATS[name], ml_dtypes.finfo(ELEMENTS[name])
    assert np.nanmax(values) == format.max
    assert (format.bits, format.mantissa_bits) == (info.bits, info.nmant)
    assert 2.0**format.max_exponent <= format.max < 2.0 ** (format.max_exponent + 1)
    assert format.has_nan_code == bool(np.isnan(values).any())


def values_to_round(name: str) -> torch.Tensor:
    """All float16 within the format's range, and floats around each of its numbers and ties."""
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    numbers = np.unique(all_codes(name)[1])
    numbers = numbers[np.isfinite(numbers)]
    edges = torch.from_numpy(np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2])).float()
    up, down = torch.tensor(torch.inf), torch.tensor(-torch.inf)
    near = torch.cat([edges, edges.nextafter(up), edges.nextafter(down)])
    values = torch.cat([every, near])
    values = values[values.abs() <= FORMATS[name].max]
    return values[: len(values) // 32 * 32]


@pytest.mark.parametrize("name", ELEMENTS)
def test_rounding_is_that_of_ml_dtypes(name: str) -> None:
    values, format = values_to_round(name), FORMATS[name]
    wanted = values.numpy().astype(ELEMENTS[name]).view(np.uint8)
    codes = encode(values.double(), format)
    found = codes.view(torch.uint8) if format.bits == 8 else unpack_bits(codes, format.bits)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_bit_streams() -> None:
    """OCP's formats are packed with the first value lowest, as compressed-tensors and Quark do."""
    assert pack_bits(torch.tensor([0x1, 0xA, 0xF, 0x4]), 4).tolist() == [0xA1, 0x4F]
    assert pack_bits(torch.tensor([0b000001, 0b100010, 0b111100, 0b000011]), 6).tolist() == [
        0b10000001,
        0b11001000,
        0b00001111,
    ]
    codes = torch.randint(0, 64, (3, 5, 32))
    assert torch.equal(unpack_bits(pack_bits(codes, 6), 6), codes)


def test_every_e8m0_scale() -> None:
    codes = torch.arange(256).to(torch.uint8)
    wanted = codes.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    np.testing.assert_array_equal(mx_scale_values(codes).numpy(), wanted)
    np.testing.assert_array_equal(mx_scale_values(codes.view(torch.float8_e8m0fnu)).numpy(), wanted)


MX_SCALES = {
    # largest value of the block: code of "floor", code of "even"; 127 is 2^0, e2m1 reaches 2^2
    6.0: (127, 127),
    6.99: (127, 127),
    7.0: (127, 128),  # 1.75 * 2^2 rounds to 2.0 * 2^2 with one bit of mantissa
    8.0: (128, 128),
    4.0: (127, 127),
    3.99: (126, 127),
    1e-3: (115, 115),
    2.0**-126: (0, 0),
    2.0**-149: (0, 0),
    2.0**-125: (0, 0),
    2.0**-124: (1, 1),
    3.4e38: (252, 252),  # 253 would make the element 2^128
    0.0: (0, 0),
    torch.inf: (255, 255),
    torch.nan: (255, 255),
}


@pytest.mark.parametrize(("largest", "codes"), MX_SCALES.items())
def test_mxfp4_scales_worked_out(largest: float, codes: tuple[int, int]) -> None:
    block = torch.zeros(32)
    block[9] = -largest
    for rounding, wanted in zip(("floor", "even"), codes, strict=True):
        found, scales = reference.quantize_mx(block, "mxfp4", rounding)
        assert scales.tolist() == [wanted]
        if wanted == 255:
            assert not found.any()


ROUNDED = {
    # 5.3 beside 7.3, whose blocks have these scales: 2^1, 1, 1/4 and 1/64
    "mx": (6.0, 8.0),
    "mxfp6_e2m3": (5.5, 7.5),
    "mxfp6_e3m2": (5.0, 7.0),
    "mxfp8": (5.5, 7.0),  # 467.2 / 64 saturates at 448
}


@pytest.mark.parametrize(("activations", "wanted"), ROUNDED.items())
def test_activations_of_each_format_worked_out(
    activations: str, wanted: tuple[float, float]
) -> None:
    """Beside mxfp4 weights; after a rotation the rotated numbers are rounded alike."""
    x = torch.zeros(64)
    x[[3, 5]] = torch.tensor([5.3, -7.3])
    found = reference.linear(x, *identity(64), activations=activations)
    assert found[[3, 5]].tolist() == [wanted[0], -wanted[1]]
    assert found.count_nonzero() == 2
    turned = reference.linear(
        rotated(x, 64), *identity(64), activations=f"{activations}_rotated", rotation=64
    )
    assert torch.equal(turned, found)


def identity(k: int) -> tuple[torch.Tensor, str, torch.Tensor]:
    """Weight, format and scales of an mxfp4 layer that shows its input."""
    codes = pack_bits(2 * torch.eye(k, dtype=torch.int64), 4)
    return codes, "mxfp4", torch.full((k, k // 32), 127, dtype=torch.uint8)


def test_fp8_scales_worked_out() -> None:
    x = torch.tensor([[448.0, -896.0, 1.0], [0.0, 0.0, 0.0], [torch.inf, 1.0, 2.0]])
    codes, scales = reference.quantize_fp8(x)
    smallest = torch.tensor(1.0 / (448.0 * 512.0)).item()
    assert scales.flatten().tolist() == [2.0, smallest, torch.inf]
    assert codes[0].tolist() == [224.0, -448.0, 0.5]
    assert codes[1].tolist() == [0.0, 0.0, 0.0]
    assert codes[2].view(torch.uint8).tolist() == [0x7F, 0, 0]
    _, scales = reference.quantize_fp8(x[:1], dtype=torch.float8_e4m3fnuz)
    assert scales.tolist() == [[4.0]]  # 224, not 240
    static, _ = reference.quantize_fp8(x, "tensor", torch.tensor([1.0]))
    assert static[0].tolist() == [448.0, -448.0, 1.0]
    assert static[2].tolist() == [448.0, 1.0, 2.0]


@pytest.mark.parametrize("granularity", ["token_block", "block"])
def test_short_blocks_have_scales_of_their_own(granularity: str) -> None:
    x = torch.ones(130, 200)
    x[:, 128:] = 7.0
    x[129, 199] = 14.0
    _, scales = reference.quantize_fp8(x, granularity)
    rows = scales[[0, 129]] if granularity == "token_block" else scales
    assert torch.equal(rows * 448, torch.tensor([[1.0, 7.0], [1.0, 14.0]]))
