"""What a device is to the operators above it."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from hk_backend.terms.requests import AttentionRequest, LinearRequest
from hk_backend.terms.verdict import Verdict


class Device(Protocol):
    """Executes operators; one instance per process and kind.

    Arguments have been checked (shapes, dtypes, scales) when they arrive here.
    """

    name: str

    @property
    def weight_layout(self) -> str:
        """How it packs weights, a name in `packed_weight.LAYOUTS`; empty if it packs none."""

    def supports(self, request: AttentionRequest) -> Verdict:
        """Whether this device serves a request that the operator's own envelope admits."""

    def attention_prefill(self, *args: Any) -> None:
        """`hk_backend::attention_prefill`, argument by argument."""

    def merge_attention(self, *args: Any) -> None:
        """`hk_backend::merge_attention`, argument by argument."""

    def supports_linear(self, request: LinearRequest) -> Verdict:
        """Whether this device serves a linear layer that the operator's own envelope admits."""

    def packed_bytes(self, format: str, n: int, k: int) -> int:
        """Bytes of a packed weight `[n, k]`."""

    def pack_weight(
        self,
        weight: torch.Tensor,
        format: str,
        scales: torch.Tensor | None,
        factors: torch.Tensor | None,
    ) -> torch.Tensor:
        """A weight in this device's layout, uint8 `[bytes]`.

        Args:
            weight: as `pack_weight` of the operators takes it, any strides.
            scales: mx formats: the e8m0 codes, uint8 `[N, K / 32]`, any strides; else None.
            factors: formats that have a NaN code: float32 `[N]`, contiguous; NaN is written where
                a column holds a NaN code, which is packed as zero. Else None.
        """

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
        """`out = x @ W.T + bias`.

        Args:
            x: `[M, K]`, bfloat16, float16 or float32; neighbours along K, any row stride.
            data to input_scale, format to k: a `PackedWeight`; all contiguous.
            bias: `[N]`, bfloat16, float16 or float32, contiguous, or None.
            out: `[M, N]`, contiguous, bfloat16, float16 or float32.
        """

    def quantize_fp8(
        self,
        x: torch.Tensor,
        group: tuple[int, int],
        divide: bool,
        dynamic: bool,
        codes: torch.Tensor,
        scales: torch.Tensor,
    ) -> None:
        """Round `x / scale` to FP8, saturating, one scale per group of elements.

        Args:
            x: `[M, K]`, bfloat16, float16 or float32; neighbours along K, any row stride.
            group: (rows, columns) that share a scale; the last group of either axis may be short.
            divide: elements are divided by their scale; else multiplied by `1 / scale`, rounded
                to float32 first.
            dynamic: `scales` are computed and written; else they are given.
            codes: `[M, K]`, contiguous, float8_e4m3fn or float8_e4m3fnuz; written.
            scales: float32 `[ceil(M / rows), ceil(K / columns)]`, contiguous.
        """

    def quantize_mx(
        self,
        x: torch.Tensor,
        format: str,
        round_scale_even: bool,
        codes: torch.Tensor,
        scales: torch.Tensor,
    ) -> None:
        """Round to an mx format (`hk_backend.ops.quantize_mx` says how).

        Args:
            x: `[M, K]`, bfloat16, float16 or float32; neighbours along K, any row stride.
            codes: uint8 `[M, K * bits / 8]`, contiguous; written.
            scales: uint8 `[M, K / 32]`, contiguous; written.
        """


class DeviceError(RuntimeError):
    """The configured device cannot run here; the message says why and what would help."""
