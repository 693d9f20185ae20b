"""Linear calls of the cpu device that differ from a checked one only in x, bias and rows.

Checking a call and finding its arguments takes longer than the product of a small layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hk_backend.devices.cpu.extension import Extension, address
from hk_backend.terms.linear_arguments import LinearArguments
from hk_backend.terms.packed_weight import FlatWeight

MOST_CALLS = 8192
"""Most calls that are kept, enough for several of each layer of a large model."""
Key = tuple[int, torch.dtype, torch.dtype]
"""Address of a packed weight, dtype of x, and dtype of the output."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One checked call: its weight, in the form of operator schemas, and its lasting arguments."""

    ints: Sequence[int]
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    n: int
    k: int
    before: tuple[Any, ...]
    behind: tuple[int, int, int, int]


class RepeatedLinear:
    """The checked calls of one device."""

    def __init__(self, on: Extension) -> None:
        self._on = on
        self._calls: dict[Key, _Call] = {}

    def keep(self, of: LinearArguments, before: tuple[Any, ...]) -> None:
        """Keeps a call that has been checked and run.

        Args:
            before: the extension's arguments that precede the sizes, without the threads.
        """
        if of.x_scales is not None or of.x.shape[0] == 0:
            return
        if len(self._calls) >= MOST_CALLS:
            self._calls.clear()
        *tensors, ints = of.weight.flat()
        places, sizes = _places(tensors), _sizes(tensors)
        call = _Call(ints, places, sizes, of.weight.n, of.weight.k, before, places)
        self._calls[places[0], of.x.dtype, of.out.dtype] = call

    def run(
        self,
        x: torch.Tensor,
        weight: FlatWeight,
        bias: torch.Tensor | None,
        out_dtype: torch.dtype,
    ) -> torch.Tensor | None:
        """Computes the output `[M, N]` for x `[M, K]`. Returns None, and does nothing, if no
        checked call was of this kind."""
        *tensors, ints = weight
        call = self._calls.get((tensors[0].data_ptr(), x.dtype, out_dtype))
        if (
            call is None
            or call.ints != ints
            or call.places != _places(tensors)
            or call.sizes != _sizes(tensors)
            or x.shape[1] != call.k
            or x.stride(1) != 1
            or not _fits(bias, call.n)
        ):
            return None
        on, rows = self._on, x.shape[0]
        out = torch.empty((rows, call.n), dtype=out_dtype)
        isa, *kind = call.before
        dtype = on.dtypes[out_dtype]
        on.kernels.linear(
            isa,
            torch.get_num_threads(),
            *kind,
            (rows, call.n, call.k),
            x.data_ptr(),
            on.dtypes[x.dtype],
            x.stride(0),
            *call.behind,
            address(bias),
            dtype if bias is None else on.dtypes[bias.dtype],
            out.data_ptr(),
            dtype,
            call.n,
        )
        return out


def _places(tensors: Sequence[torch.Tensor | None]) -> tuple[int, int, int, int]:
    data, factors, block_scales, input_scale = tensors
    return address(data), address(factors), address(block_scales), address(input_scale)


def _sizes(tensors: Sequence[torch.Tensor | None]) -> tuple[int, ...]:
    """Bytes of each tensor, as another tensor may lie at a known address by now."""
    return tuple(0 if tensor is None else tensor.nbytes for tensor in tensors)


def _fits(bias: torch.Tensor | None, n: int) -> bool:
    return bias is None or (bias.dim() == 1 and bias.shape[0] == n and bias.stride(0) == 1)
