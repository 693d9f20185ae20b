"""Tensors in the emulated GPU's memory, for the launcher's reader of torch tensors, DLPack's
exchange table.

Without a GPU, torch has no such tensors. These also have byte offsets, which torch never gives.
"""

from __future__ import annotations

import ctypes
from typing import Any

MAJOR = 1  # constants of dlpack.h 1.3
ROCM = 10
INT32 = (0, 32, 1)
CAPSULE = b"dlpack_exchange_api"


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))


class Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("managed", ctypes.c_void_p * 3),
        ("read", Read),
        ("stream", ctypes.c_void_p),
    )


def read(tensor: Any, out: Any) -> int:
    out[0] = tensor.described
    return 0


TABLE = Table(MAJOR, 3)
TABLE.read = Read(read)


def capsule() -> object:
    """A Python capsule around `TABLE`."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    made: object = new(ctypes.addressof(TABLE), CAPSULE, None)
    return made


class GpuTensor:
    """An int32 tensor at `address` + `byte_offset` of GPU `index`, with strides in elements."""

    __dlpack_c_exchange_api__ = capsule()

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *,
        byte_offset: int = 0,
        index: int = 0,
    ) -> None:
        axes = ctypes.c_int64 * len(shape)
        self.described = DLTensor(
            address, (ROCM, index), len(shape), *INT32, axes(*shape), axes(*strides), byte_offset
        )
