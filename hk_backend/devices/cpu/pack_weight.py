"""`pack_weight` on the cpu device: passes addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.terms.linear_arguments import PackWeightArguments


def run(on: Extension, of: PackWeightArguments) -> None:
    on.kernels.pack_weight(
        on.isa,
        torch.get_num_threads(),
        on.formats[of.format],
        (of.n, of.k),
        of.weight.data_ptr(),
        of.weight.stride(),
        address(of.scales),
        (0, 0) if of.scales is None else of.scales.stride(),
        of.data.data_ptr(),
        address(of.factors),
    )
