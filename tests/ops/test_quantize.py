"""The quantisers give the bits of the reference: no tolerance anywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hk_backend import reference
from hk_backend.devices import DeviceError, device_for
from hk_backend.ops import pack_weight, quantize_fp8, quantize_mx
from hk_backend.ops.quantize_fp8 import GRANULARITIES
from hk_backend.ops.quantize_mx import SCALE_ROUNDINGS
from hk_backend.reference.linear import positive_elements
from hk_backend.terms.linear_arguments import LookUpArguments
from hk_backend.terms.weight_format import FLOAT_DTYPES, FORMATS
from tests.ops.conftest import GPU, ISAS
from tests.ops.linear_cases import X_LAYOUTS, laid_out

FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
COMPUTED_BY_GPU = ("token", "channel", "token_block")
MX_FORMATS = tuple(name for name, format in FORMATS.items() if format.is_mx)
ON_GPUS_TOO = pytest.mark.parametrize("isa", [*ISAS, GPU], indirect=True)


def everywhere(
    *granularities: str, by_gpu: tuple[str, ...] = COMPUTED_BY_GPU
) -> pytest.MarkDecorator:
    """Parametrise by instruction set, and by the emulated GPU where it has a kernel."""
    rows = [*itertools.product(ISAS, granularities, FP8_DTYPES)]
    rows += [(GPU, each, torch.float8_e4m3fn) for each in granularities if each in by_gpu]
    return pytest.mark.parametrize(("isa", "granularity", "fp8"), rows, indirect=["isa"])


def same_bits(found: torch.Tensor, wanted: torch.Tensor, name: str) -> None:
    """Assert equal bytes; any NaN of float32 scales equals any other."""
    assert found.dtype == wanted.dtype
    both = (found, wanted)
    if found.dtype != torch.float32:
        both = (found.view(torch.uint8), wanted.view(torch.uint8))
    torch.testing.assert_close(*both, rtol=0, atol=0, equal_nan=True, msg=lambda m: f"{name}: {m}")


def check_fp8(
    x: torch.Tensor, granularity: str, dtype: torch.dtype, scale: torch.Tensor | None = None
) -> None:
    both = (each(x, granularity, scale, dtype) for each in (quantize_fp8, reference.quantize_fp8))
    for found, wanted, name in zip(*both, ("codes", "scales"), strict=True):
        same_bits(found, wanted, name)


def check_mx(x: torch.Tensor, format: str, scale_rounding: str, rotation: int = 0) -> None:
    arguments = (x, format, scale_rounding, rotation)
    both = (each(*arguments) for each in (quantize_mx, reference.quantize_mx))
    for found, wanted, name in zip(*both, ("codes", "scales"), strict=True):
        same_bits(found, wanted, name)


def hard_rows(dtype: torch.dtype) -> torch.Tensor:
    """Rows `[15, 320]` that a quantiser gets wrong first; each block of 32 has its own share."""
    random = torch.Generator().manual_seed(1)
    info = torch.finfo(dtype)
    x = torch.randn(15, 320, generator=random)
    x[1] = 0.0
    x[2] = -0.0
    x[3, 40:] = 0.0  # blocks of zeros beside others
    x[4] *= 10.0 ** torch.randint(-30, 30, (320,), generator=random)
    x[5, [33, 200]] *= 1e4  # outliers
    x[6] *= info.smallest_normal * 4
    x[7] = x[7].sign() * info.max
    x[8, 5], x[8, 170], x[8, 319] = math.inf, -math.inf, math.inf
    x[9, 7], x[9, 290] = math.nan, -math.nan
    x[10] = 0.0
    x[10, 77] = info.smallest_normal * info.eps  # one denormal
    x[11, ::2] = 0.0
    x[12] = torch.arange(320).remainder(17) / 16.0  # many ties
    x[13] = info.smallest_normal
    x[14] = torch.cat([reciprocal_ties(a) for a in (3.0, 5.0, 11.0, 13.0, 19.0)]).repeat(2)
    return x.clamp(-info.max, info.max).where(x.isfinite(), x).to(dtype)


def reciprocal_ties(largest: float) -> torch.Tensor:
    """32 numbers with a given largest, whose quotients by the scale are ties of both FP8 formats:
    `x / scale` and `x * (1 / scale)`, rounded to float32, may fall on different sides."""
    ties = torch.tensor([21.0, 10.5, -42.0, 5.25, 35.0 / 2, 49.0 / 2, 63.0 / 2, -84.0])
    return torch.cat([torch.tensor([largest]), ties.repeat(4)[:31] * largest / 448])


@everywhere(*COMPUTED_BY_GPU)
def test_ties_of_scales(granularity: str, fp8: torch.dtype, isa: str) -> None:
    rows = torch.stack([reciprocal_ties(float(largest)) for largest in range(3, 256, 2)])
    check_fp8(rows, granularity, fp8)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@everywhere(*GRANULARITIES)
def test_fp8_of_hard_rows(granularity: str, fp8: torch.dtype, dtype: torch.dtype, isa: str) -> None:
    rows = hard_rows(dtype)
    check_fp8(rows, granularity, fp8)
    for first in range(0, len(rows), 2):  # without the NaN that swallows a whole tensor's scale
        check_fp8(rows[first : first + 1], granularity, fp8)
    check_fp8(rows[:, :8], granularity, fp8)


@ON_GPUS_TOO
@pytest.mark.parametrize("format", MX_FORMATS)
def test_mx_of_hard_rows(format: str, isa: str) -> None:
    for dtype, scale_rounding in itertools.product(FLOAT_DTYPES, SCALE_ROUNDINGS):
        check_mx(hard_rows(dtype), format, scale_rounding)


def every_value(dtype: torch.dtype) -> torch.Tensor:
    """All finite numbers of a dtype of 16 bits, `[rows, 32]`, as they follow each other."""
    values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    values = values[values.isfinite()]
    return values[: len(values) // 32 * 32].view(-1, 32)


def shuffled(rows: torch.Tensor) -> torch.Tensor:
    order = torch.randperm(rows.numel(), generator=torch.Generator().manual_seed(2))
    return rows.flatten()[order].view(-1, 32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fp8", FP8_DTYPES)
def test_fp8_of_every_number(fp8: torch.dtype, dtype: torch.dtype, isa: str) -> None:
    rows = every_value(dtype)
    for scale in (1.0, 2.0**-8, 0.0371, 1e30):
        check_fp8(rows, "tensor", fp8, torch.tensor([scale]))
    check_fp8(rows, "token", fp8)
    check_fp8(shuffled(rows).view(-1, 2, 32)[:1000], "token_block", fp8)


@ON_GPUS_TOO
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("format", MX_FORMATS)
def test_mx_of_every_number(format: str, dtype: torch.dtype, isa: str) -> None:
    for rows in (every_value(dtype), shuffled(every_value(dtype))):
        for scale_rounding in SCALE_ROUNDINGS:
            check_mx(rows, format, scale_rounding)


def around_ties(elements: torch.Tensor) -> torch.Tensor:
    """float32 at, just above and just below every number and every tie of a format, signed."""
    edges = torch.cat([elements, (elements[1:] + elements[:-1]) / 2]).float()
    up, down = torch.tensor(math.inf), torch.tensor(-math.inf)
    near = torch.cat([edges, edges.nextafter(up), edges.nextafter(down)])
    return torch.cat([near, -near])


def positive_fp8(dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(128, dtype=torch.uint8).view(dtype).double()
    return values[values.isfinite()]


@everywhere("tensor", by_gpu=("tensor",))
def test_fp8_ties(granularity: str, fp8: torch.dtype, isa: str) -> None:
    x = around_ties(positive_fp8(fp8))[None]
    for scale in (1.0, 4.0, 2.0**-20):  # powers of two, so that ties stay ties
        check_fp8(x * scale, granularity, fp8, torch.tensor([scale]))


@ON_GPUS_TOO
@pytest.mark.parametrize("format", MX_FORMATS)
def test_mx_ties(format: str, isa: str) -> None:
    """Every tie in a block whose largest value pins the scale to a given power of two."""
    facts = FORMATS[format]
    elements = positive_fp8(facts.dtype) if facts.bits == 8 else positive_elements(format)
    x = around_ties(elements)
    x = x[x.abs() < facts.max]
    blocks = torch.full((-(-len(x) // 31), 32), facts.max)
    blocks[:, 1:] = torch.nn.functional.pad(x, (0, -len(x) % 31)).view(-1, 31)
    for exponent in (0, -100, 90):
        check_mx(blocks * 2.0**exponent, format, "floor")
        check_mx(blocks * 2.0**exponent, format, "even")


@everywhere(*GRANULARITIES, by_gpu=GRANULARITIES)
def test_given_scales(granularity: str, fp8: torch.dtype, isa: str) -> None:
    x = torch.randn(150, 296, generator=torch.Generator().manual_seed(4)).bfloat16()
    _, scales = reference.quantize_fp8(x, granularity)
    given = scales * (1 + torch.arange(scales.numel()).view(scales.shape) / 7)
    check_fp8(x, granularity, fp8, given)


@pytest.mark.parametrize("layout", X_LAYOUTS)
@pytest.mark.parametrize("m", [1, 6])
@everywhere("token", "tensor", "token_block")
def test_strides(m: int, layout: str, granularity: str, fp8: torch.dtype, isa: str) -> None:
    x = laid_out(torch.randn(m, 160, generator=torch.Generator().manual_seed(5)), layout)
    check_fp8(x, granularity, fp8)
    for format in MX_FORMATS:
        check_mx(x, format, "floor")


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_fp8_of_any_width(granularity: str, isa: str) -> None:
    random = torch.Generator().manual_seed(7)
    for k in (1, 7, 8, 31, 33, 127, 128, 129, 257):
        for m in (1, 2, 129):
            check_fp8(torch.randn(m, k, generator=random), granularity, torch.float8_e4m3fn)


@pytest.mark.parametrize("shape", [(0, 64), (3, 0, 64), (64,)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    for granularity in ("token", "tensor", "token_block"):
        check_fp8(x, granularity, torch.float8_e4m3fn)
    codes, scales = quantize_mx(x, "mxfp6_e2m3")
    assert codes.shape == (*shape[:-1], 48)
    assert scales.shape == (*shape[:-1], 2)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_same_bits_for_any_number_of_threads(granularity: str, threads: None) -> None:
    x = torch.randn(300, 520)
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append((*quantize_fp8(x, granularity), *quantize_mx(x[:, :512], "mxfp6_e3m2")))
    for result in results[1:]:
        for found, wanted in zip(result, results[0], strict=True):
            same_bits(found, wanted, "result")


def check_error(call: Callable[[], object], found: str, valid: str, in_a_trace: bool) -> None:
    """A compiler gets the same error while it traces, if the graph's inputs tell."""
    for mode in (nullcontext(), FakeTensorMode(allow_non_fake_inputs=True))[: 1 + in_a_trace]:
        with mode, pytest.raises(ValueError, match=f"^{found}.* expected .*{valid}"):
            call()


FP8_ERRORS = {
    "integers": ({"x": torch.ones(2, 8, dtype=torch.int32)}, "x: torch.int32", "float32"),
    "no axis": ({"x": torch.tensor(1.0)}, r"x: \(\)", r"\[..., K\]"),
    "no channel": ({"x": torch.ones(3, 0)}, r"x: \(3, 0\)", "K at least 1"),
    "granularity": ({"granularity": "row"}, "granularity: 'row'", "token_block"),
    "dtype": ({"dtype": torch.float8_e5m2}, "dtype: torch.float8_e5m2", "float8_e4m3fnuz"),
    "weight of three axes": (
        {"x": torch.ones(2, 3, 8), "granularity": "block"},
        r"x: \(2, 3, 8\)",
        r"\[N, K\]",
    ),
    "scale's shape": ({"scale": torch.ones(3)}, r"scale: .*\[3\]", r"\[2, 1\]"),
    "scale's dtype": ({"scale": torch.ones(2, 1).half()}, "scale: torch.float16", "float32"),
    "gradient": ({"x": torch.ones(2, 8, requires_grad=True)}, "x: .*grad", "inference"),
}


@pytest.mark.parametrize(("changes", "found", "valid"), FP8_ERRORS.values(), ids=FP8_ERRORS)
def test_fp8_errors(changes: dict[str, object], found: str, valid: str) -> None:
    arguments: Any = {"granularity": "token"} | changes
    call = partial(quantize_fp8, **{"x": torch.ones(2, 8), **arguments})
    check_error(call, found, valid, in_a_trace=True)


MX_ERRORS = {
    "format": ({"format": "mxfp5"}, "format: 'mxfp5'", "mxfp4"),
    "fp8": ({"format": "fp8_e4m3fn"}, "format: 'fp8_e4m3fn'", "mxfp8"),
    "half a block": ({"x": torch.ones(2, 48)}, r"x: \(2, 48\)", "32"),
    "rounding": ({"scale_rounding": "up"}, "scale_rounding: 'up'", "floor, even"),
    "double": ({"x": torch.ones(2, 32).double()}, "x: torch.float64", "float32"),
    "no such rotation": ({"rotation": 16}, "rotation: 16", "0 or one of 32, 64, 128"),
    "a float": ({"rotation": 32.0}, "rotation: 32.0", "0 or one of 32, 64, 128"),
    "a rotation past K": ({"rotation": 64}, "rotation: 64 with K = 32", "a divisor of K"),
}


@pytest.mark.parametrize(("changes", "found", "valid"), MX_ERRORS.values(), ids=MX_ERRORS)
def test_mx_errors(changes: dict[str, object], found: str, valid: str) -> None:
    arguments: Any = {"format": "mxfp4"} | changes
    call = partial(quantize_mx, **{"x": torch.ones(2, 32), **arguments})
    check_error(call, found, valid, in_a_trace=changes.get("rotation") != 32.0)


@pytest.mark.parametrize(
    ("granularity", "dtype", "why"),
    [
        ("tensor", torch.float8_e4m3fn, "granularity: .* reciprocal of dynamic scales of 3 x 16"),
        ("block", torch.float8_e4m3fn, "granularity: .* divided by dynamic scales of 128 x 128"),
        ("token", torch.float8_e4m3fnuz, "dtype: torch.float8_e4m3fnuz .* torch.float8_e4m3fn"),
    ],
)
def test_what_a_gpu_has_no_kernel_for(
    granularity: str, dtype: torch.dtype, why: str, on_gfx950: None
) -> None:
    with pytest.raises(ValueError, match=why):
        quantize_fp8(torch.ones(3, 16), granularity, None, dtype)


def test_an_operator_that_a_gpu_lacks(on_gfx950: None) -> None:
    weight = pack_weight(torch.ones(16, 64).bfloat16(), "bf16")
    arguments = LookUpArguments(torch.zeros(1, dtype=torch.int64), weight, torch.empty(1, 64))
    with pytest.raises(DeviceError, match="emulated:gfx950: no look_up kernels for gfx950"):
        device_for("cpu").run(arguments)
