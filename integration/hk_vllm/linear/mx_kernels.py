"""HK's kernels for weights in OCP microscaling formats, in vLLM's lists of linear kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearKernel
from vllm.model_executor.kernels.linear.mxfp6.base import MxFp6LinearKernel
from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearKernel
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    kMxfp4Dynamic,
    kMxfp6E2M3Dynamic,
    kMxfp6E2M3Static,
    kMxfp6E3M2Dynamic,
    kMxfp6E3M2Static,
    kMxfp8Dynamic,
)

from hk_backend.engine.linear.packed_layer import pack_layer, release
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict, refused
from hk_backend.terms.weight_format import MX_BLOCK, rotated_activations
from hk_vllm.linear.kernel import HKKernel
from hk_vllm.linear.layer import device_type, verdict_on

MXFP6 = {
    kMxfp6E2M3Static: ("mxfp6_e2m3", kMxfp6E2M3Dynamic),
    kMxfp6E3M2Static: ("mxfp6_e3m2", kMxfp6E3M2Dynamic),
}
"""HK's format, and the key of activations in the same format, by the key of the weight."""
BESIDE_MXFP4 = {
    kMxfp4Dynamic: "mx",
    kMxfp6E2M3Dynamic: "mxfp6_e2m3",
    kMxfp6E3M2Dynamic: "mxfp6_e3m2",
    kMxfp8Dynamic: "mxfp8",
}
"""HK's name of the rounding of activations beside mxfp4 weights, by vLLM's key."""
_WEIGHTS_ALONE: ContextVar[bool] = ContextVar("weights_alone", default=False)


class HKMxKernel(HKKernel):
    """Mixin for weights of an OCP microscaling format, and activations in one or unquantised."""

    weight_only = False
    """Whether the checkpoint asks for unquantised activations; checkpoints.py sets it."""

    def request(self, layer: Any) -> LinearRequest:
        n, blocks = layer.weight_scale.shape
        dtype = torch.get_default_dtype()  # vLLM processes layers under the model's dtype
        k, rounding = blocks * MX_BLOCK, self.activations()
        return LinearRequest(device_type(), dtype, self.format(), n, k, rounding)

    def format(self) -> str:
        raise NotImplementedError

    def pack(self, layer: Any) -> None:
        pack_layer(
            layer,
            layer.weight.data,
            self.format(),
            layer.weight_scale.data,
            activations=self.activations(),
            rotation=self.rotation,
            names={"weight": self.weight_name},
        )
        release(layer, "weight_scale")

    def activations(self) -> str:
        key = getattr(self.config, "activation_quant_key", "the weight's")
        rounding = "none" if self.weight_only or key is None else self.rounding(key)
        return rotated_activations(rounding, self.rotation)

    def rounding(self, key: Any) -> str:
        """HK's name of the rounding that vLLM's `key` stands for."""
        return "mx"


class HKMxfp8LinearKernel(HKMxKernel, Mxfp8LinearKernel):  # type: ignore[misc]
    """Kernel for mxfp8 (e4m3fn elements)."""

    listed_in = "_POSSIBLE_MXFP8_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        if config.bmm_batch_size is not None:
            return refused("a batch of matrices")
        n, k = config.weight_shape
        return mx_verdict("mxfp8", n, k)

    def format(self) -> str:
        return "mxfp8"


class HKMxfp6LinearKernel(HKMxKernel, MxFp6LinearKernel):  # type: ignore[misc]
    """Kernel for mxfp6, e2m3 or e3m2."""

    listed_in = "_POSSIBLE_MXFP6_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        known = MXFP6.get(config.weight_quant_key)
        if known is None:
            return refused(f"a weight in {config.weight_quant_key}")
        format, activations = known
        if config.activation_quant_key not in (None, activations):
            return refused(f"activations in another format than the weight's, {format}")
        return mx_verdict(
            format, activations="none" if config.activation_quant_key is None else "mx"
        )

    def format(self) -> str:
        return MXFP6[self.config.weight_quant_key][0]


class HKMxfp4LinearKernel(HKMxKernel, MxFp4LinearKernel):  # type: ignore[misc]
    """Kernel for mxfp4 (e2m1 elements)."""

    listed_in = "_POSSIBLE_MXFP4_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        key = config.activation_quant_key
        if key not in (None, *BESIDE_MXFP4):
            return refused(f"activations in {key} with a weight in mxfp4")
        return mx_verdict("mxfp4", activations="none" if key is None else BESIDE_MXFP4[key])

    def format(self) -> str:
        return "mxfp4"

    def rounding(self, key: Any) -> str:
        return BESIDE_MXFP4.get(key, "mx")


def mx_verdict(format: str, n: int = 1, k: int = MX_BLOCK, activations: str = "mx") -> Verdict:
    """Whether HK serves a layer in an MX format.

    vLLM's configurations for MX lack the dtype of activations, and some the shape.
    """
    dtype = torch.get_default_dtype()
    rounding = "none" if _WEIGHTS_ALONE.get() else activations
    return verdict_on(LinearRequest(device_type(), dtype, format, n, k, rounding))


@contextmanager
def weights_alone(are_quantised: bool) -> Iterator[None]:
    """While vLLM chooses a kernel: whether the checkpoint leaves activations as they are.

    Not all of vLLM's configurations for MX say so.
    """
    token = _WEIGHTS_ALONE.set(are_quantised)
    try:
        yield
    finally:
        _WEIGHTS_ALONE.reset(token)
