"""The cpu device: native host kernels (`csrc/cpu`) on torch CPU tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from hk_backend.devices.base import DeviceError
from hk_backend.devices.cpu.linear import CpuLinear
from hk_backend.terms.requests import AttentionRequest
from hk_backend.terms.verdict import SERVED, Verdict, refused

# Packed keys and values are one endless block of tokens: (layout of CacheView, see _packed).
_ENDLESS = 2**62


class CpuDevice(CpuLinear):
    """Host kernels of one instruction set: avx512, avx2 or portable."""

    def __init__(self, isa: str) -> None:
        from hk_backend import _cpu

        self.name = f"cpu:{isa}"
        self._isa = isa
        self._kernels = _cpu
        self._dtypes = {getattr(torch, name): _cpu.DType.__members__[name] for name in _DTYPES}
        # pybind11 makes a new dictionary at each look at __members__
        self._formats = dict(_cpu.Format.__members__)
        self._activations = dict(_cpu.Activations.__members__)

    def supports(self, request: AttentionRequest) -> Verdict:
        if request.device_type != "cpu":
            return refused(f"tensors on {request.device_type} with the cpu device")
        return SERVED

    def attention_prefill(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_start_loc: torch.Tensor,
        key_start_loc: torch.Tensor | None,
        seq_lens: torch.Tensor | None,
        block_table: torch.Tensor | None,
        paged_layout: list[int],
        sinks: torch.Tensor | None,
        alibi_slopes: torch.Tensor | None,
        k_scale: torch.Tensor | None,
        v_scale: torch.Tensor | None,
        scale: float,
        value_factor: float,
        causal: bool,
        sliding_window: int,
        logits_soft_cap: float,
        out: torch.Tensor,
        lse: torch.Tensor | None,
    ) -> None:
        """`hk_backend::attention_prefill`; values are checked here, before anything is written.

        Raises:
            ValueError: `query_start_loc`, `key_start_loc`, `seq_lens` or `block_table` holds a
                value that points outside what it indexes.
        """
        tokens, heads, head_size = query.shape
        # Kept in locals until the call returns: what is passed on is a bare address.
        vectors = [
            tensor if tensor is None or tensor.is_contiguous() else tensor.contiguous()
            for tensor in (query_start_loc, key_start_loc, seq_lens, sinks, alibi_slopes)
        ]
        starts, key_starts, lengths, sinks, alibi_slopes = vectors
        if paged_layout:
            assert block_table is not None
            if block_table.stride(1) != 1 and block_table.shape[1] > 1:
                block_table = block_table.contiguous()
            kv_tokens, kv_heads = 0, paged_layout[18]
            key_layout: Sequence[int] = paged_layout[:8]
            value_layout: Sequence[int] = paged_layout[8:16]
            blocks = (block_table.stride(0), block_table.shape[1], *paged_layout[16:18])
        else:
            kv_tokens, kv_heads = key.shape[:2]
            key_layout, value_layout = _packed(key), _packed(value)
            blocks = (0, 0, 0, 0)
        self._kernels.attention_prefill(
            self._isa,
            torch.get_num_threads(),
            self._dtypes[query.dtype],
            self._dtypes[key.dtype],
            (query_start_loc.shape[0] - 1, tokens, kv_tokens, heads, kv_heads, head_size),
            query.data_ptr(),
            query.stride(),
            key.data_ptr(),
            key_layout,
            value.data_ptr(),
            value_layout,
            _address(starts),
            _address(key_starts),
            _address(lengths),
            _address(block_table),
            blocks,
            _address(sinks),
            _address(alibi_slopes),
            _address(k_scale),
            _scale_stride(k_scale),
            _address(v_scale),
            _scale_stride(v_scale),
            scale,
            value_factor,
            causal,
            sliding_window,
            logits_soft_cap,
            out.data_ptr(),
            out.stride(),
            _address(lse),
            (0, 0) if lse is None else lse.stride(),
        )

    def merge_attention(
        self,
        output_a: torch.Tensor,
        lse_a: torch.Tensor,
        output_b: torch.Tensor,
        lse_b: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
    ) -> None:
        """`hk_backend::merge_attention`."""
        self._kernels.merge_attention(
            self._isa,
            torch.get_num_threads(),
            self._dtypes[out.dtype],
            tuple(out.shape),
            output_a.data_ptr(),
            output_a.stride(),
            lse_a.data_ptr(),
            lse_a.stride(),
            output_b.data_ptr(),
            output_b.stride(),
            lse_b.data_ptr(),
            lse_b.stride(),
            out.data_ptr(),
            out.stride(),
            lse.data_ptr(),
            lse.stride(),
        )


_DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def _packed(tensor: torch.Tensor) -> tuple[int, ...]:
    """`[tokens, heads, channels]` as the layout of a cache with one endless block."""
    token, head, channel = tensor.stride()
    return (0, head, 0, token, 0, channel, _ENDLESS, _ENDLESS)


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _scale_stride(scale: torch.Tensor | None) -> int:
    return 0 if scale is None or scale.shape[0] == 1 else scale.stride(0)


@cache
def cpu_device(isa: str = "") -> CpuDevice:
    """The device for `isa`, or for the best instruction set of this machine if it is empty.

    Raises:
        DeviceError: the extension cannot be loaded, or this machine lacks the instruction set.
    """
    try:
        from hk_backend import _cpu
    except ImportError as error:
        raise DeviceError(
            f"the extension hk_backend._cpu cannot be loaded ({error}): reinstall hk-backend"
        ) from error
    available = _cpu.available_isas()
    isa = isa or available[0]
    if isa not in available:
        raise DeviceError(
            f"HK_DEVICE=cpu:{isa} cannot run on this machine: expected one of "
            f"{', '.join(f'cpu:{name}' for name in available)}"
        )
    return CpuDevice(isa)
