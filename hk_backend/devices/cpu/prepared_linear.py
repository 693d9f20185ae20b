"""Linear calls of the cpu device that differ from a checked one only in the tensors' addresses.

Checking a call and finding its arguments takes longer than the product of a small layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.terms.attention_step import AttentionStep
from hk_backend.terms.linear_arguments import LinearArguments


@dataclass(frozen=True, slots=True)
class PreparedLinear:
    """A checked call of a layer, to be repeated on `LinearArguments.tensors`.

    Args:
        kind: the extension's arguments up to the sizes, without the threads.
        layouts: layouts of the tensors of weight and bias. Those of x and out are the caller's.
        dtypes: of x, bias and out.
    """

    on: Extension
    kind: tuple[Any, ...]
    sizes: tuple[int, int, int]
    rows: tuple[int, int]
    dtypes: tuple[Any, Any, Any]
    layouts: tuple[Any, ...]

    @classmethod
    def of(cls, on: Extension, call: LinearArguments, kind: tuple[Any, ...]) -> PreparedLinear:
        """Prepares the repetition of a call that brings no scales of x."""
        bias = call.out if call.bias is None else call.bias
        return cls(
            on,
            kind,
            (call.x.shape[0], call.weight.n, call.weight.k),
            (call.x.stride(0), call.out.stride(0)),
            (on.dtypes[call.x.dtype], on.dtypes[bias.dtype], on.dtypes[call.out.dtype]),
            _layouts(*call.weight.flat()[:-1], call.bias),
        )

    def launch(self, step: AttentionStep | None, tensors: Sequence[torch.Tensor | None]) -> bool:
        x, data, factors, block_scales, input_scale, bias, _, out = tensors
        if _layouts(data, factors, block_scales, input_scale, bias) != self.layouts:
            return False
        isa, *kind = self.kind
        x_row, out_row = self.rows
        x_dtype, bias_dtype, out_dtype = self.dtypes
        self.on.kernels.linear(
            isa,
            torch.get_num_threads(),
            *kind,
            self.sizes,
            address(x),
            x_dtype,
            x_row,
            address(data),
            address(factors),
            address(block_scales),
            address(input_scale),
            address(bias),
            bias_dtype,
            address(out),
            out_dtype,
            out_row,
        )
        return True


def _layouts(*tensors: torch.Tensor | None) -> tuple[Any, ...]:
    return tuple(
        None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.is_cpu)
        for tensor in tensors
    )
