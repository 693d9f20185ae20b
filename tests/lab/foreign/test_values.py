"""Arguments in text become the numbers and tensors that they name, or a helpful error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hk_backend import _emulator
from hk_backend.lab.foreign import arguments, tensors
from hk_backend.lab.foreign.arguments import ArgumentError, WrongCount
from tests.emulator.assembly import Declared, Program, kernel_of, together

FLOATS = ("f64", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz")
INTEGERS = ("i64", "i32", "i16", "i8", "u8")


def by_value(size: int) -> Program:
    return Program("s_nop 0", first=(Declared("by_value", 0, size, "n"),))


NUMBER = {size: by_value(size) for size in (1, 2, 4, 8, 16)}
POINTER = Program("s_nop 0", first=(Declared("global_buffer", 0, 8, "x"),))
UNNAMED = Program("s_nop 0", first=(Declared("global_buffer", 0, 8),))
together([*NUMBER.values(), POINTER, UNNAMED])


def kernel(program: Program = POINTER, arch: str = "gfx950") -> _emulator.Kernel:
    return kernel_of(program, arch)


def value(text: str, program: Program = POINTER, seed: int = 0, arch: str = "gfx950") -> Any:
    (found,) = arguments.values(kernel(program, arch), [text], seed)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        ("0x10", 16),
        ("-5", -5),
        ("1_000", 1000),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("-inf", -np.inf),
        ("none", None),
        ("None", None),
    ],
)
def test_plain_values(text: str, expected: object) -> None:
    found = value(text, NUMBER[4])
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("f32=4", 4, np.float32(4).tobytes()),
        ("f64=0.1", 8, np.float64(0.1).tobytes()),
        ("f16=0.1", 2, np.float16(0.1).tobytes()),
        ("bf16=1", 2, b"\x80\x3f"),
        ("e4m3=1", 1, b"\x38"),
        ("i8=-1", 1, b"\xff"),
        ("i64=-2", 8, b"\xfe" + 7 * b"\xff"),
        ("bytes:00fF7f80", 4, b"\0\xff\x7f\x80"),
        ("bytes:" + 16 * "ab", 16, 16 * b"\xab"),
    ],
)
def test_typed_numbers_and_bytes(text: str, size: int, expected: bytes) -> None:
    assert value(text, NUMBER[size]) == expected


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_tensors_of_every_dtype(name: str) -> None:
    dtype = tensors.DTYPES[name]
    for fill, expected in (
        ("zeros", [0] * 6),
        ("ones", [1] * 6),
        ("3", [3] * 6),
        ("arange", [0, 1, 2, 3, 4, 5]),
    ):
        found = value(f"{name}[2,3]={fill}")
        assert (found.dtype, found.shape) == (dtype, (2, 3))
        assert found.double().flatten().tolist() == expected
        assert found.is_contiguous()
    assert value(f"{name}[0]=zeros").numel() == 0


@pytest.mark.parametrize("name", FLOATS)
def test_floats_that_integers_do_not_have(name: str) -> None:
    assert value(f"{name}[5]=nan").float().isnan().all()
    assert value(f"{name}[2]=-0.5").float().tolist() == [-0.5, -0.5]
    first, again, other = (value(f"{name}[64,64]=normal", seed=seed) for seed in (1, 1, 2))
    bits = first.view(torch.uint8)
    assert torch.equal(bits, again.view(torch.uint8))
    assert not torch.equal(bits, other.view(torch.uint8))
    spread = first.double()
    # 4096 draws: five standard errors of the mean and of the standard deviation
    assert abs(spread.mean()) < 5 / 64
    assert abs(spread.std() - 1) < 5 / 64


def test_tensors_of_one_launch_differ() -> None:
    program = Program("s_nop 0")
    first, second = arguments.values(kernel(program), ["f32[8]=normal", "f32[8]=normal"], 0)
    assert not torch.equal(first, second)


def test_fp8_is_the_format_of_the_arch() -> None:
    assert value("fp8[1]=ones", arch="gfx950").dtype == torch.float8_e4m3fn
    assert value("fp8[1]=ones", arch="gfx942").dtype == torch.float8_e4m3fnuz


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_a_tensor_survives_its_file(name: str, tmp_path: Path) -> None:
    dtype, path = tensors.DTYPES[name], tmp_path / "x.npy"
    every = torch.arange(256, dtype=torch.uint8).repeat(dtype.itemsize).view(dtype)
    tensors.save(every, path)
    saved, wide = np.load(path), every.double()
    with np.errstate(invalid="ignore"):  # signalling NaN
        np.testing.assert_array_equal(saved.astype(np.float64), wide.numpy())
    if name in ("bf16", *FLOATS[4:]):
        assert saved.dtype == np.float32
    back = value(f"{name}[256]={path}")
    assert back.dtype == dtype
    assert torch.equal(back.double().nan_to_num(7), wide.nan_to_num(7))


def test_a_file_is_rounded_to_a_floating_point_dtype(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([1.0, 1 + 2**-9], np.float64))
    assert value(f"bf16[2]={path}").double().tolist() == [1, 1]
    np.save(path, np.array([300, 2], np.int64))
    assert value(f"f32[2]={path}").tolist() == [300, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "valid: an integer (4096, 0x10), a float (0.5), none, a typed number"),
        ("x", "valid: an integer (4096, 0x10), a float (0.5), none, a typed number"),
        ("q8[4]=ones", "dtype 'q8'; valid: f64, f32, f16, bf16, e4m3, e5m2, e4m3fnuz"),
        ("q8=4", "dtype 'q8'; valid: f64"),
        ("f32[]=ones", "shape []; valid: sizes as in [64,128]"),
        ("f32[4,x]=ones", "shape [4,x]; valid: sizes as in [64,128]"),
        ("f32[-4]=ones", "shape [-4]; valid: sizes as in [64,128]"),
        ("f32[4]", "contents ''; valid: zeros, ones, nan, arange, normal, a number, or FILE.npy"),
        ("f32[4]=norml", "contents 'norml'; valid: zeros, ones, nan, arange, normal, a number"),
        ("i32[4]=normal", "contents 'normal'; valid: zeros, ones, arange, an integer in its"),
        ("i32[4]=0.5", "contents '0.5'; valid: zeros, ones, arange, an integer in its range"),
        ("u8[4]=256", "contents '256'; valid: zeros, ones, arange, an integer in its range"),
        ("f32[1000000,1000000,1000000]=ones", "shape [1000000, 1000000, 1000000]: "),
        ("f32[4]=none.npy", "none.npy: [Errno 2] No such file or directory"),
        ("bytes:0g", "valid: pairs of hexadecimal digits after bytes:"),
        ("bytes:00", "1 bytes; valid: global_buffer of 8 bytes"),
    ],
)
def test_errors_name_the_argument_its_text_and_what_is_valid(text: str, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        value(text)
    assert str(caught.value).startswith(f"number 0 (x) is {text!r}")
    assert said in str(caught.value)


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for array, text, said in (
        (np.zeros((2, 3)), "f32[6]", "has the shape [2, 3]; valid: [6]"),
        (np.zeros(6), "i32[6]", "has float64; valid: numbers that torch.int32 can hold"),
        (np.array([-1, 2]), "u8[2]", "exceeds torch.uint8; valid: 0 to 255"),
        (np.array([1j]), "f32[1]", "has complex128; valid: numbers that torch.float32 can"),
        (np.array(["a"]), "f32[1]", "valid: numbers that torch.float32 can hold"),
    ):
        np.save(path, array)
        with pytest.raises(ArgumentError) as caught:
            value(f"{text}={path}")
        assert said in str(caught.value)
    for data in (b"", b"no numpy"):
        path.write_bytes(data)
        with pytest.raises(ArgumentError, match=r"valid: a file that numpy\.save wrote"):
            value(f"f32[1]={path}")


def test_a_tensor_is_no_number() -> None:
    said = r"number 0 \(n\) is 'f32\[4\]=ones', a pointer of 8 bytes; valid: by_value of 4 bytes"
    with pytest.raises(ArgumentError, match=said):
        value("f32[4]=ones", NUMBER[4])
    assert value("f32[4]=ones", NUMBER[8]).tolist() == [1] * 4  # a struct with an address


def test_the_number_of_arguments() -> None:
    for texts in ([], ["none", "none"]):
        with pytest.raises(WrongCount, match=f"{len(texts)} given; k.* declares 1"):
            arguments.values(kernel(), texts, 0)
    with pytest.raises(ArgumentError, match="number 0 is 'x': valid"):
        arguments.values(kernel(UNNAMED), ["x"], 0)
