"""A kernel's argument struct: the packed bytes agree with ctypes, and bad values are refused."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from hk_backend.kernels.arguments import ArgumentError, Arguments, Field


class Twin(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_int32),
        ("stride", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("mask", ctypes.c_uint32),
        ("causal", ctypes.c_bool),
    ]


TYPES = ["pointer", "int32", "int64", "float32", "uint32", "bool"]
ARGUMENTS = Arguments(
    ctypes.sizeof(Twin),
    tuple(
        Field(name, kind, getattr(Twin, name).offset)
        for (name, _), kind in zip(Twin._fields_, TYPES, strict=True)
    ),
)
VALUES: dict[str, Any] = {
    "data": 2**48 + 16,
    "count": -7,
    "stride": 2**40,
    "scale": 0.125,
    "mask": 2**32 - 1,
    "causal": True,
}


def test_none_is_null_for_a_pointer_alone() -> None:
    packed = ARGUMENTS.pack(VALUES | {"data": None})
    assert Twin.from_buffer_copy(packed).data is None
    with pytest.raises(ArgumentError, match="stride must be an integer, not None"):
        ARGUMENTS.pack(VALUES | {"stride": None})


def test_padding_is_zero() -> None:
    packed = bytearray(ARGUMENTS.pack(VALUES))
    for field in ARGUMENTS.fields:
        packed[field.offset : field.offset + field.size] = bytes(field.size)
    assert packed == bytes(ARGUMENTS.size)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("count", 2**31, "count = 2147483648 is not a valid int32"),
        ("count", 1.5, "count must be an integer, not 1.5"),
        ("mask", -1, "mask = -1 is not a valid uint32"),
        ("stride", -(2**63) - 1, "stride = -9223372036854775809 is not a valid int64"),
        ("data", 2**64, "data = 18446744073709551616 is not a valid pointer"),
        ("data", "q", "data must be an integer, not 'q'"),
        ("scale", 1e39, "scale = 1e[+]39 is not a valid float32"),
        ("scale", True, "scale must be a number, not True"),
        ("scale", None, "scale must be a number, not None"),
        ("other", 0, "unknown other; the fields are data, count, stride, scale, mask, causal"),
    ],
)
def test_refusals_name_the_field(field: str, value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ARGUMENTS.pack(VALUES | {field: value})


def test_missing_fields_are_named() -> None:
    with pytest.raises(ArgumentError, match="missing count, scale"):
        ARGUMENTS.pack({k: v for k, v in VALUES.items() if k not in ("count", "scale")})
