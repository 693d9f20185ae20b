"""`quantize_mx` on the cpu device: passes addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

import torch

from hk_backend.devices.cpu.extension import Extension
from hk_backend.terms.linear_arguments import QuantizeMxArguments


def run(on: Extension, of: QuantizeMxArguments) -> None:
    on.kernels.quantize_mx(
        on.isa,
        torch.get_num_threads(),
        on.formats[of.format],
        tuple(of.x.shape),
        of.x.data_ptr(),
        on.dtypes[of.x.dtype],
        of.x.stride(0),
        of.rotation,
        of.round_scale_even,
        of.codes.data_ptr(),
        of.scales.data_ptr(),
    )
