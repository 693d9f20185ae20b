"""`look_up` on the cpu device: passes addresses and sizes to `_cpu`."""

from __future__ import annotations

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.terms.linear_arguments import LookUpArguments


def run(on: Extension, of: LookUpArguments) -> None:
    weight = of.weight
    on.kernels.look_up(
        on.isa,
        torch.get_num_threads(),
        on.formats[weight.format],
        weight.rotation,
        (len(of.ids), weight.n, weight.k),
        of.ids.data_ptr(),
        weight.data.data_ptr(),
        address(weight.factors),
        address(weight.block_scales),
        of.out.data_ptr(),
        on.dtypes[of.out.dtype],
    )
