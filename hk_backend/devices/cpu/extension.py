"""The extension `hk_backend._cpu` for one instruction set, and torch dtypes as its enumerations."""

from __future__ import annotations

import torch

_DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


class Extension:
    """Host kernels of one instruction set of `_cpu.available_isas()`."""

    def __init__(self, isa: str) -> None:
        from hk_backend import _cpu

        self.isa = isa
        self.kernels = _cpu
        self.dtypes = {getattr(torch, name): _cpu.DType.__members__[name] for name in _DTYPES}
        # pybind11 makes a new dictionary at each access of __members__
        self.formats = dict(_cpu.Format.__members__)
        self.activations = dict(_cpu.Activations.__members__)

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        """Bytes of a packed weight `[n, k]`."""
        found: int = self.kernels.packed_bytes(self.isa, self.formats[format], n, k)
        return found


def address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
