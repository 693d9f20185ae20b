"""Puts HK first in vLLM's lists of linear kernels; layers that it refuses go to the next kernel.

Each class reads a layer's parameters as vLLM's schemes leave them, packs them once, and computes
with the packed weight alone. Where vLLM's next kernel was measured to be faster, the layer is
handed over to it (next_kernel.py).
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any, ClassVar

import torch
from vllm.model_executor.kernels import linear as lists
from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearKernel
from vllm.model_executor.kernels.linear.mxfp6.base import MxFp6LinearKernel
from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearKernel
from vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel import (
    Fp8BlockScaledMMLinearKernel,
)
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    FP8ScaledMMLinearKernel,
)
from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic
from vllm.platforms import PlatformEnum, current_platform

from hk_backend.engine import loggers
from hk_backend.engine.linear.packed_layer import FORMAT_OF, is_released, pack_layer, release
from hk_backend.engine.linear.scales import as_channels, one_input_scale
from hk_backend.ops import LinearRequest
from hk_backend.terms.verdict import Verdict, refused
from hk_backend.terms.weight_format import MX_BLOCK, rotated_activations
from hk_vllm.linear.codes import announced, multiply
from hk_vllm.linear.created import blocks_verdict, verdict_on_created
from hk_vllm.linear.kernel_keys import (
    MXFP6,
    activations_of,
    fp8_verdict,
    mx_verdict,
    scale_kind_of,
)
from hk_vllm.linear.next_kernel import theirs_for

logger = loggers.of("vllm", "linear")

Answer = tuple[bool, str | None]


def install() -> None:
    """Puts HK's classes first in the lists of CPU and ROCm; harmless to call again.

    Kernels that another plugin has put first stay before HK's.
    """
    for name, kernel in KERNELS.items():
        by_platform = getattr(lists, name)
        for platform in (PlatformEnum.CPU, PlatformEnum.ROCM):
            kernels = by_platform.setdefault(platform, [])
            if kernel not in kernels:
                first = list(takewhile(is_foreign, kernels))
                kernels.insert(len(first), kernel)
                for each in first:
                    said = "hk_backend: %s, which another plugin put first, stays before HK's"
                    path = f"{each.__module__}.{each.__name__}"
                    loggers.info_once(logger, said, f"{name}: {path}")


def is_foreign(kernel: type) -> bool:
    """Whether `kernel` is another plugin's."""
    return kernel.__module__.partition(".")[0] not in ("vllm", "hk_vllm")


class HKKernel:
    """Mixin with all that HK's kernel classes share. Each class has its own `verdict` and
    `pack`."""

    config: Any
    listed_in: ClassVar[str]
    """vLLM's list (module vllm.model_executor.kernels.linear) that the class is in."""
    weight_name = "weight"
    """Name of the weight in the checkpoint; checkpoints.py sets this and `rotation`."""
    rotation = 0
    """Channels of the input that are rotated together, like those of the weight; 0: none."""

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        raise NotImplementedError

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> Answer:
        return True, None  # the verdict covers the device's limits, with the layer's facts

    @classmethod
    def can_implement(cls, config: Any) -> Answer:
        verdict = verdict_on_created() and cls.verdict(config)
        return verdict.ok, verdict.why or None

    def process_weights_after_loading(self, layer: Any) -> None:
        if is_released(layer):
            return
        theirs = theirs_for(self, layer, pack, prepare)
        if theirs is None:
            self.pack(layer)
        else:
            theirs.process_weights_after_loading(layer)

    def request(self, layer: Any) -> LinearRequest:
        """HK's request for `layer`, whose tensors have been loaded."""
        raise NotImplementedError

    def pack(self, layer: Any) -> None:
        raise NotImplementedError

    def codes_key(self) -> Any:
        """vLLM's key of the FP8 codes that this kernel multiplies; None if it takes none."""
        return None

    def input_quant_key(self) -> Any:
        return announced(self.codes_key())

    def apply_weights(
        self, layer: Any, x: Any, bias: torch.Tensor | None = None, **_: Any
    ) -> torch.Tensor:
        theirs = getattr(layer, "hk_theirs", None)
        if theirs is not None:
            computed: torch.Tensor = theirs.apply_weights(layer, x, bias)
            return computed
        out_dtype = getattr(self.config, "out_dtype", None)
        quantiser = getattr(self, "quant_fp8", None)
        return multiply(layer, x, bias, out_dtype, self.codes_key(), quantiser)


def pack(kernel: HKKernel, layer: Any) -> None:
    """Prepares `layer` for HK."""
    kernel.pack(layer)


def prepare(kernel: Any, layer: Any) -> None:
    """Prepares `layer` for a kernel of vLLM."""
    kernel.process_weights_after_loading(layer)


class HKFp8Kernel(HKKernel):
    """Mixin for FP8 weights."""

    def activations(self) -> str:
        """HK's name for the rounding of activations."""
        return activations_of(self.config.activation_quant_key)

    def request(self, layer: Any) -> LinearRequest:
        weight, (n, k) = self.config.weight_quant_key, self.config.weight_shape
        return LinearRequest(
            current_platform.device_type,
            self.config.input_dtype,
            FORMAT_OF[weight.dtype],
            n,
            k,
            self.activations(),
            scale_kind_of(weight),
        )


class HKFp8LinearKernel(HKFp8Kernel, FP8ScaledMMLinearKernel):  # type: ignore[misc]
    """Kernel for FP8 weights with a scale per tensor or output channel, and FP8 activations."""

    listed_in = "_POSSIBLE_FP8_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        activations = activations_of(config.activation_quant_key)
        if activations not in ("token", "tensor"):
            return refused(f"activations quantised per {config.activation_quant_key.scale}")
        kind = scale_kind_of(config.weight_quant_key)
        if kind not in ("tensor", "channel"):
            return refused(f"weight scales per {config.weight_quant_key.scale}")
        return fp8_verdict(config, activations, kind)

    def codes_key(self) -> Any:
        return self.config.activation_quant_key

    def pack(self, layer: Any) -> None:
        """Packs a weight `[K, N]` from vLLM's schemes, with a scale for each channel or for all."""
        self._pack(layer, layer.weight.data.t(), layer.weight_scale)

    def process_checkpoint(self, layer: Any) -> None:
        """Packs the checkpoint's own tensors: a weight `[N, K]`, and the scale of each shard."""
        scales = as_channels(layer, layer.weight_scale)
        self._pack(layer, layer.weight.data, scales)

    def _pack(self, layer: Any, weight: torch.Tensor, scales: torch.Tensor) -> None:
        static = None
        if self.config.activation_quant_key.scale.static:
            static = one_input_scale(layer)
        pack_layer(
            layer,
            weight,
            FORMAT_OF[weight.dtype],
            scales,
            activations=self.activations(),
            input_scale=static,
        )
        release(layer, "weight_scale", "input_scale")
        if static is not None:
            layer.input_scale = layer.hk_input_scale  # vLLM's fused kernels read it there

    def apply_scaled_mm(self, **_: Any) -> torch.Tensor:
        raise NotImplementedError("apply_weights computes the whole layer")


class HKWeightOnlyFp8LinearKernel(HKFp8LinearKernel):
    """Kernel for FP8 weights with scales of any kind, and unquantised activations."""

    listed_in = "_POSSIBLE_WFP8A16_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        kind = scale_kind_of(config.weight_quant_key)
        if not kind:
            return refused(f"weight scales per {config.weight_quant_key.scale}")
        return fp8_verdict(config, "none", kind)

    def codes_key(self) -> None:
        return None

    def activations(self) -> str:
        return "none"

    def pack(self, layer: Any) -> None:
        blocks = getattr(layer, "weight_scale_inv", None)
        weight = layer.weight.data
        if blocks is None:
            weight, scales, name = weight.t(), layer.weight_scale, "weight_scale"
        else:
            # vLLM's weight_scale_inv here is weight_scale in the checkpoint
            scales, name = blocks.float(), "weight_scale"
        pack_layer(layer, weight, FORMAT_OF[weight.dtype], scales, names={"scales": name})
        release(layer, "weight_scale", "weight_scale_inv", "input_scale")


class HKFp8BlockLinearKernel(HKFp8Kernel, Fp8BlockScaledMMLinearKernel):  # type: ignore[misc]
    """Kernel for FP8 weights in 128x128 blocks, and FP8 activations per token and 128 channels."""

    listed_in = "_POSSIBLE_FP8_BLOCK_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        activations = activations_of(config.activation_quant_key)
        if activations != "token_block":
            return refused(f"activations quantised per {config.activation_quant_key.scale}")
        if scale_kind_of(config.weight_quant_key) != "block":
            return refused(f"weight scales per {config.weight_quant_key.scale}")
        blocks = blocks_verdict()
        return fp8_verdict(config, activations, "block") if blocks else blocks

    def codes_key(self) -> Any:
        return self.config.activation_quant_key

    def pack(self, layer: Any) -> None:
        params = self._get_layer_params(layer)
        name = params.block_scale_attr
        pack_layer(
            layer,
            layer.weight.data,
            FORMAT_OF[layer.weight.dtype],
            params.block_scale.float(),
            activations=self.activations(),
            names={"scales": name},
        )
        release(layer, name, "input_scale")

    def apply_block_scaled_mm(self, *_: Any, **__: Any) -> torch.Tensor:
        raise NotImplementedError("apply_weights computes the whole layer")


class HKMxKernel(HKKernel):
    """Mixin for weights of an OCP microscaling format, and activations in it or unquantised."""

    weight_only = False
    """Whether the checkpoint asks for unquantised activations; checkpoints.py sets it."""

    def request(self, layer: Any) -> LinearRequest:
        n, blocks = layer.weight_scale.shape
        dtype = torch.get_default_dtype()  # vLLM processes layers under the model's dtype
        where = current_platform.device_type
        return LinearRequest(where, dtype, self.format(), n, blocks * MX_BLOCK, self.activations())

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
        rounding = "none" if self.weight_only or key is None else "mx"
        return rotated_activations(rounding, self.rotation)


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
        return mx_verdict(format)

    def format(self) -> str:
        return MXFP6[self.config.weight_quant_key][0]


class HKMxfp4LinearKernel(HKMxKernel, MxFp4LinearKernel):  # type: ignore[misc]
    """Kernel for mxfp4 (e2m1 elements)."""

    listed_in = "_POSSIBLE_MXFP4_KERNELS"

    @classmethod
    def verdict(cls, config: Any) -> Verdict:
        if config.activation_quant_key not in (None, kMxfp4Dynamic):
            return refused("activations in another format than the weight's, mxfp4")
        return mx_verdict("mxfp4")

    def format(self) -> str:
        return "mxfp4"


KERNELS: dict[str, type[HKKernel]] = {
    kernel.listed_in: kernel
    for kernel in (
        HKFp8LinearKernel,
        HKFp8BlockLinearKernel,
        HKWeightOnlyFp8LinearKernel,
        HKMxfp8LinearKernel,
        HKMxfp6LinearKernel,
        HKMxfp4LinearKernel,
    )
}
"""HK's class for each of vLLM's lists."""


def counterpart(kernel: Any, weight_only: bool) -> type[HKKernel] | None:
    """HK's class for layers that vLLM gave to `kernel`; None if there is none."""
    if isinstance(kernel, FP8ScaledMMLinearKernel):
        return HKWeightOnlyFp8LinearKernel if weight_only else HKFp8LinearKernel
    for base, ours in (
        (Fp8BlockScaledMMLinearKernel, HKFp8BlockLinearKernel),
        (Mxfp8LinearKernel, HKMxfp8LinearKernel),
        (MxFp6LinearKernel, HKMxfp6LinearKernel),
        (MxFp4LinearKernel, HKMxfp4LinearKernel),
    ):
        if isinstance(kernel, base):
            return ours
    return None
