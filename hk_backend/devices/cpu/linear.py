"""Linear layers and quantisers of the cpu device: addresses, sizes and strides for `_cpu`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from hk_backend.terms.requests import LinearRequest
from hk_backend.terms.verdict import SERVED, Verdict, refused


class CpuLinear:
    """The part of `CpuDevice` that serves linear layers."""

    name: str
    _isa: str
    _kernels: ModuleType
    _dtypes: dict[torch.dtype, Any]
    _formats: dict[str, Any]
    _activations: dict[str, Any]

    @property
    def weight_layout(self) -> str:
        return self._isa

    def supports_linear(self, request: LinearRequest) -> Verdict:
        if request.device_type != "cpu":
            return refused(f"tensors on {request.device_type} with the cpu device")
        return SERVED

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        found: int = self._kernels.packed_bytes(self._isa, self._formats[format], n, k)
        return found

    def pack_weight(
        self,
        weight: torch.Tensor,
        format: str,
        scales: torch.Tensor | None,
        factors: torch.Tensor | None,
    ) -> torch.Tensor:
        n, k = weight.shape
        if format in _CODES_PER_BYTES:
            codes, stored = _CODES_PER_BYTES[format]
            k = k * codes // stored
        data = torch.empty(self.packed_bytes(format, n, k), dtype=torch.uint8)
        self._kernels.pack_weight(
            self._isa,
            torch.get_num_threads(),
            self._formats[format],
            (n, k),
            weight.data_ptr(),
            weight.stride(),
            _address(scales),
            (0, 0) if scales is None else scales.stride(),
            data.data_ptr(),
            _address(factors),
        )
        return data

    def linear(
        self,
        x: torch.Tensor,
        data: torch.Tensor,
        factors: torch.Tensor | None,
        block_scales: torch.Tensor | None,
        input_scale: torch.Tensor | None,
        bias: torch.Tensor | None,
        format: str,
        activations: str,
        n: int,
        k: int,
        out: torch.Tensor,
    ) -> None:
        self._kernels.linear(
            self._isa,
            torch.get_num_threads(),
            self._formats[format],
            self._activations[activations],
            (x.shape[0], n, k),
            x.data_ptr(),
            self._dtypes[x.dtype],
            x.stride(0),
            data.data_ptr(),
            _address(factors),
            _address(block_scales),
            _address(input_scale),
            _address(bias),
            self._dtypes[out.dtype if bias is None else bias.dtype],
            out.data_ptr(),
            self._dtypes[out.dtype],
            out.stride(0),
        )

    def quantize_fp8(
        self,
        x: torch.Tensor,
        group: tuple[int, int],
        divide: bool,
        dynamic: bool,
        codes: torch.Tensor,
        scales: torch.Tensor,
    ) -> None:
        self._kernels.quantize_fp8(
            self._isa,
            torch.get_num_threads(),
            self._formats[_FP8_FORMATS[codes.dtype]],
            tuple(x.shape),
            x.data_ptr(),
            self._dtypes[x.dtype],
            x.stride(0),
            group,
            divide,
            dynamic,
            codes.data_ptr(),
            scales.data_ptr(),
        )

    def quantize_mx(
        self,
        x: torch.Tensor,
        format: str,
        round_scale_even: bool,
        codes: torch.Tensor,
        scales: torch.Tensor,
    ) -> None:
        self._kernels.quantize_mx(
            self._isa,
            torch.get_num_threads(),
            self._formats[format],
            tuple(x.shape),
            x.data_ptr(),
            self._dtypes[x.dtype],
            x.stride(0),
            round_scale_even,
            codes.data_ptr(),
            scales.data_ptr(),
        )


# Formats that store several codes together: (codes, bytes).
_CODES_PER_BYTES = {"mxfp6_e2m3": (4, 3), "mxfp6_e3m2": (4, 3), "mxfp4": (2, 1)}
_FP8_FORMATS = {torch.float8_e4m3fn: "fp8_e4m3fn", torch.float8_e4m3fnuz: "fp8_e4m3fnuz"}


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
