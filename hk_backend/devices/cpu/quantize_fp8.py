"""`quantize_fp8` on the cpu device: passes addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

import torch

from hk_backend.devices.cpu.extension import Extension
from hk_backend.terms.linear_arguments import QuantizeFp8Arguments
from hk_backend.terms.weight_format import format_of_fp8


def run(on: Extension, of: QuantizeFp8Arguments) -> None:
    on.kernels.quantize_fp8(
        on.isa,
        torch.get_num_threads(),
        on.formats[format_of_fp8(of.codes.dtype).name],
        tuple(of.x.shape),
        of.x.data_ptr(),
        on.dtypes[of.x.dtype],
        of.x.stride(0),
        of.group,
        of.divide,
        of.dynamic,
        of.codes.data_ptr(),
        of.scales.data_ptr(),
    )
