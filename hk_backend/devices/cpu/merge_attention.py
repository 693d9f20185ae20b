"""`merge_attention` on the cpu device: passes addresses, sizes and strides to `_cpu`."""

from __future__ import annotations

import torch

from hk_backend.devices.cpu.extension import Extension
from hk_backend.terms.attention_arguments import MergeArguments


def run(on: Extension, of: MergeArguments) -> None:
    tensors = (of.output_a, of.lse_a, of.output_b, of.lse_b, of.out, of.lse)
    places = [place for tensor in tensors for place in (tensor.data_ptr(), tensor.stride())]
    on.kernels.merge_attention(
        on.isa, torch.get_num_threads(), on.dtypes[of.out.dtype], tuple(of.out.shape), *places
    )
